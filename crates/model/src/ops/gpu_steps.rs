//! What the GPU's attention kernels do to queries, keys and values beyond what all kernels do.

use mlx::Array;

use crate::{NormAt, Temperature};

/// Steps of the GPU's kernels, which no others have.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct GpuSteps {
    /// What is projected is limited to this magnitude first.
    pub(crate) clip: Option<f32>,
    /// When heads are normed.
    pub(crate) norm_at: NormAt,
    /// What rotated queries are multiplied with.
    pub(crate) temperature: Option<Temperature>,
}

impl GpuSteps {
    pub(crate) const NONE: Self = Self { clip: None, norm_at: NormAt::BeforeRotation, temperature: None };
}

/// `x` limited to a magnitude.
pub(crate) fn clipped(x: &Array, most: f32) -> mlx::Result<Array> {
    let [low, high] = [Array::scalar(-most, x.dtype()?)?, Array::scalar(most, x.dtype()?)?];
    x.clip(Some(&low), Some(&high))
}
