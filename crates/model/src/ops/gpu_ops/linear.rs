//! Products with weights.

use mlx::gpu::{FEW_ROWS_MAX, FewRowsWeight, few_rows};
use mlx::{Array, QuantMode};

use super::{GpuKernel, is_on};
use crate::ops::Weight;

/// From so many rows on, weights are unpacked once and multiplied as floats: MLX's packed product reaches 121 TFLOP/s on
/// an H200, the dense one 684.
const UNPACK_ROWS: usize = 256;
/// Rows up to which our dense product is as fast as MLX's, which takes longer to launch.
const DENSE_ROWS_MAX: usize = 32;

/// `x · Wᵀ` where MLX's own operation is not the best; `None` elsewhere.
pub(super) fn product(x: &Array, weight: &Weight) -> mlx::Result<Option<Array>> {
    if !is_on(GpuKernel::Linear) {
        return Ok(None);
    }
    let rows = x.size() / x.shape().last().map_or(1, |width| (*width).max(1) as usize);
    match weight {
        Weight::Dense(weight) if (2..=DENSE_ROWS_MAX).contains(&rows) => {
            few_rows(x, FewRowsWeight::Dense(weight))
        }
        Weight::Dense(_) => Ok(None),
        Weight::Packed(packed) if rows <= FEW_ROWS_MAX as usize => few_rows(x, FewRowsWeight::Packed(packed)),
        Weight::Packed(packed) if rows >= UNPACK_ROWS && packed.mode == QuantMode::Affine => {
            let dense = packed.dequantize(x.dtype()?)?;
            x.matmul(&dense.t()?).map(Some)
        }
        Weight::Packed(_) => Ok(None),
    }
}
