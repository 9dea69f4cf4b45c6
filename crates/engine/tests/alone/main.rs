//! Tests of how much memory an engine takes, one at a time: MLX counts and limits the memory of the process.
//!
//! Invariant: every test holds [`alone`].

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod swap;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test poisons the lock; the next one can run.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
