//! Products with weights.

use mlx::device::{Backend, backend};
use mlx::gpu::{FewRows, FewRowsWeight, MatrixUnit, Narrow, few_rows, unpack};
use mlx::{Array, Dtype, QuantMode, Quantized};

use crate::ops::Weight;

/// On CUDA, from so many rows on, packed weights are unpacked once and multiplied as floats. Measured on an H200, 4,096 x
/// 4,096 in 4 bits: 102 us packed at 128 rows and 570 at 2,048, against 30 and 100 dense. MLX compiles its packed product
/// for half a minute at the first use from 8 rows on.
pub(super) const UNPACK_ROWS: usize = 8;
/// Rows up to which our dense product of more than `SMALL_WEIGHTS` elements is as fast as MLX's, which takes longer to launch:
/// where simd groups multiply, and where warpgroups do. With smaller weights ours are as fast with more rows. On an H200
/// 128 streams of an 8B take 8.6 ms with ours and 7.8 with MLX's, and of a 0.6B 3.7 and 4.3.
const LARGE_WEIGHT_ROWS: i32 = 32;
const LARGE_WEIGHT_WARPGROUP_ROWS: i32 = 64;
const SMALL_WEIGHT_ROWS: i32 = 128;
const SMALL_WEIGHTS: usize = 1 << 23;

/// What multiplies many rows with weights that are not packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManyRows {
    /// Whatever takes the GPU less time.
    Fastest,
    /// Our kernels, of which a step is one graph: ranks wait for each other's launches. On two H200 128 streams of an 8B take 15 ms where
    /// MLX's products are launched one by one.
    InGraphs,
}

fn dense_rows(weight: &Array, many: ManyRows) -> usize {
    let unit = MatrixUnit::of_device();
    let most = match (unit, many) {
        (_, ManyRows::InGraphs) => FewRows::most(unit),
        _ if weight.size() <= SMALL_WEIGHTS => FewRows::most(unit).min(SMALL_WEIGHT_ROWS),
        (MatrixUnit::SimdGroup, _) => LARGE_WEIGHT_ROWS,
        (MatrixUnit::Warpgroup, _) => LARGE_WEIGHT_WARPGROUP_ROWS,
    };
    most as usize
}

/// The product with a weight of few outputs.
fn narrow(x: &Array, weight: &Array) -> mlx::Result<Option<Array>> {
    let ([outputs, inputs], dtype) = (weight.dims()?, x.dtype()?);
    let rows = x.size() as i32 / inputs.max(1);
    let Some(plan) = Narrow { dtype, rows, inputs, outputs }.plan().filter(|_| rows > 0) else {
        return Ok(None);
    };
    let y = plan.call(&[x, weight])?.pop().ok_or_else(|| mlx::Error::new("a product"))?;
    if x.ndim() == 2 {
        return Ok(Some(y));
    }
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = outputs;
    }
    y.reshape(&shape).map(Some)
}

/// `x · Wᵀ`, and a bias if there is one, where MLX's own operation is not the best; `None` elsewhere.
pub(super) fn product(
    x: &Array,
    weight: &Weight,
    bias: Option<&Array>,
    many: ManyRows,
) -> mlx::Result<Option<Array>> {
    match (backend(), weight) {
        // MLX's own products are good there, but read packed weights again for each 32 rows.
        (Backend::Metal, Weight::Packed(packed)) => {
            return few_rows(x, FewRowsWeight::Packed(packed), bias);
        }
        (Backend::Metal, Weight::Dense(_)) | (Backend::Cpu, _) => return Ok(None),
        (Backend::Cuda, _) => {}
    }
    let rows = x.size() / x.shape().last().map_or(1, |width| (*width).max(1) as usize);
    match weight {
        Weight::Dense(weight) if weight.dim(0)? <= Narrow::OUTPUTS_MAX => match bias {
            Some(_) => Ok(None),
            None => narrow(x, weight),
        },
        Weight::Dense(weight) => match (1..=dense_rows(weight, many)).contains(&rows) {
            true => few_rows(x, FewRowsWeight::Dense(weight), bias),
            false => Ok(None),
        },
        Weight::Packed(packed) => match few_rows(x, FewRowsWeight::Packed(packed), bias)? {
            Some(product) => Ok(Some(product)),
            None if rows >= UNPACK_ROWS && can_be_unpacked(packed) && bias.is_none() => {
                x.matmul(&unpacked(packed, x.dtype()?)?.t()?).map(Some)
            }
            None => Ok(None),
        },
    }
}

/// Whether unpacking these weights for a pass is worth it.
pub(super) fn can_be_unpacked(packed: &Quantized) -> bool {
    matches!(packed.mode, QuantMode::Affine | QuantMode::Mxfp4)
}

/// Weights as numbers.
pub(super) fn unpacked(packed: &Quantized, dtype: Dtype) -> mlx::Result<Array> {
    match unpack(packed, dtype)? {
        Some(weights) => Ok(weights),
        None => packed.dequantize(dtype),
    }
}
