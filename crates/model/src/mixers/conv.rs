//! The weights of a causal convolution of each channel and its activation, `silu`, before a recurrence.

use mlx::Array;

use crate::LoadError;
use crate::weights::Store;

/// One weight for each channel and each of the last `conv_kernel_size` rows.
pub(crate) struct CausalConv {
    /// `[conv_kernel_size, channels]` f32, the oldest row first.
    pub(crate) weight: Array,
    /// `[channels]` f32.
    pub(crate) bias: Option<Array>,
}

impl CausalConv {
    pub(super) fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let (weight, bias) = store.conv(path)?;
        Ok(Self { weight, bias })
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.weight].into_iter().chain(&self.bias)
    }
}
