//! Panics turned into errors.
//!
//! Invariant: the caller drops what a panic may have left half-done: a step, or the scheduler and all memory.

use std::any::Any;

/// Runs part of a step; a panic becomes an error.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> mlx::Result<T>) -> mlx::Result<T> {
    omnibus_text::catch_panic(work).unwrap_or_else(|panic| Err(mlx::Error::new(format!("a panic: {panic}"))))
}

/// A panic's message.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
