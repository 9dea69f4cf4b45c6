//! What the GPU's attention kernels fuse with norms and rotation, and no others do.

use mlx::Array;

use crate::mixers::{NormAt, Temperature};

/// What happens to queries, keys and values in the GPU's kernels.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct GpuFusions {
    /// What is projected is limited to this magnitude first.
    pub(crate) clip: Option<f32>,
    /// When heads are normed.
    pub(crate) norm_at: NormAt,
    /// What rotated queries are multiplied with.
    pub(crate) temperature: Option<Temperature>,
}

impl GpuFusions {
    pub(crate) const NONE: Self = Self { clip: None, norm_at: NormAt::BeforeRotation, temperature: None };
}

/// `x` limited to a magnitude.
pub(crate) fn clipped(x: &Array, most: f32) -> mlx::Result<Array> {
    let [low, high] = [Array::scalar(-most, x.dtype()?)?, Array::scalar(most, x.dtype()?)?];
    x.clip(Some(&low), Some(&high))
}
