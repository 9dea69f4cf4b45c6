//! Counts the memory that a call allocates. Calls are counted one after the other.

use std::alloc::System;
use std::sync::Mutex;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a call returns, and how many bytes were allocated meanwhile, freed or not.
pub fn allocated<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|error| error.into_inner());
    let region = Region::new(ALLOCATOR);
    let result = call();
    (result, region.change().bytes_allocated)
}
