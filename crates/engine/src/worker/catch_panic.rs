//! Panics turned into errors.
//!
//! Invariant: the caller drops what a panic may have left half-done: a step, or the scheduler and all memory.

/// Runs part of a step; a panic becomes an error.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> mlx::Result<T>) -> mlx::Result<T> {
    omnibus_text::catch_panic(work).unwrap_or_else(|panic| Err(mlx::Error::new(format!("a panic: {panic}"))))
}
