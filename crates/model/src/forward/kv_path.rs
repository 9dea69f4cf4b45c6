//! How a pass reaches the KV cache.

/// How rows reach their keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvPath {
    /// One kernel writes keys and values to the blocks and attends over the blocks; no pool is ever copied.
    Paged,
    /// MLX's operations scatter keys and values to the blocks and gather whole sequences to attend. A pool that a step
    /// in flight still reads would be copied, so a step is launched only when the last one is done.
    Gather,
}
