//! Panics, which are ours, kept to what they concern.
//!
//! Invariant: what a panic may have left half-done is thrown away by the caller: a step, or all memory and all books.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Computes something of a step; a panic is an error like any other.
pub(super) fn contained<T>(work: impl FnOnce() -> mlx::Result<T>) -> mlx::Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => Err(mlx::Error::new(format!("a panic: {}", said(panic.as_ref())))),
    }
}

/// What a panic said.
pub(super) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}
