//! How a pass reaches the KV cache.

/// How rows reach their keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvPath {
    /// Kernels write keys and values to the blocks and attend over the blocks; no pool is ever copied.
    Paged,
    /// MLX's operations scatter keys and values to the blocks and gather whole sequences to attend. A pool that a step
    /// in flight still reads would be copied, so a step is launched only when the last one is done.
    Gather,
}

/// What attention reads to find its keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionPath {
    /// Segments and block tables: the CPU's paged kernel.
    Segments,
    /// Items on the device: the GPU's paged kernels.
    Items,
    /// Gathers and masks: MLX's operations.
    Gather,
}

/// How recurrences find the states of a pass's sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatePath {
    /// Runs in the host's memory: the CPU's kernels, which write states in place.
    Runs,
    /// Runs on the device: the GPU's kernels, which write states in place.
    DeviceRuns,
    /// Gathers and scatters: MLX's operations.
    Gather,
}

impl AttentionPath {
    pub(crate) fn kv_path(self) -> KvPath {
        match self {
            Self::Segments | Self::Items => KvPath::Paged,
            Self::Gather => KvPath::Gather,
        }
    }
}
