//! Products of many rows with the weights of the experts that were chosen for them (a grouped matrix product), by warpgroups.

use super::linear::{FewRowsWeight, MatrixUnit, Stored, even, is_half_width, whole};
use super::plan::{Plan, dtype, int};
use super::source::{Dialect, LANE_ORDER, WMM_GROUPED, WMM_GROUPED_PACKED};
use super::weight_format::WeightFormat;
use crate::array::Array;
use crate::device;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// Products of rows of bf16 or f16 with weights of experts, `[experts, outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedProduct {
    /// Of the rows, and of what is not packed in the weights.
    pub dtype: Dtype,
    /// How the weights are stored.
    pub format: WeightFormat,
    /// Pairs of a row and an expert.
    pub pairs: i32,
    /// Pairs that share a row of `x`: the experts of a row, or 1 where each pair has a row of its own.
    pub pairs_per_row: i32,
    /// Experts that there are.
    pub experts: i32,
    /// Columns of `x` and of the weights.
    pub inputs: i32,
    /// Rows of an expert's weights.
    pub outputs: i32,
}

/// Groups: one for each of an H200's multiprocessors.
const GROUPS: i32 = 132;
/// Tiles of 8 pairs of an expert that a group multiplies at a time.
const PAIR_TILES: i32 = 16;
/// Warpgroups of a group that share its pairs, and simd groups that copy for them. Measured on an H200 with 128 experts of 2,048 to 1,536 and
/// of 768 to 2,048, and 16,384 pairs of which some experts have more than others, in us. Weights that are not packed: 346 to 368 and 210 to
/// 221 with four; 337 to 379 and 243 to 254 with three and up to 160 pairs; 389 to 439 and 263 to 283 with two and up to 192. Of 4 bits: 303 to
/// 312 and 184 to 193 with four; 307 to 320 and 202 with three; 368 to 392 and 225 to 258 with two and up to 192.
const WARPGROUPS: i32 = 4;
const PRODUCERS: i32 = 4;
/// Stages of a group's weights and rows, 64 inputs each.
const STAGES: i32 = 4;
/// Stages of its rows alone, 128 inputs each: a stage has five barriers, of which there are 15.
const PACKED_STAGES: i32 = 3;
/// Registers of the simd groups that copy, and of those that multiply packed weights: all that there are. The sums have 64.
const REGISTERS: [i32; 2] = [24, 112];
const LANE_ORDER_THREADS: i32 = 256;

impl GroupedProduct {
    /// Inputs: `x` `[rows, inputs]`, for packed weights as [`lane_order_plan`] makes it; the weights, for packed ones with scales and biases; and
    /// the two arrays of [`expert_rows`](super::expert_rows) or others like them. Output: `[pairs, outputs]`. `None` for sizes and dtypes
    /// without a kernel, and but for CUDA with warpgroups.
    pub fn plan(&self, dialect: Dialect, unit: MatrixUnit) -> Option<Plan> {
        let fits = self.format.fits(self.inputs) && self.outputs > 0 && self.experts > 0;
        let has_kernel =
            dialect == Dialect::Cuda && unit == MatrixUnit::Warpgroup && is_half_width(self.dtype);
        if !fits || !has_kernel || self.pairs < 1 {
            return None;
        }
        let tile = 64 * WARPGROUPS;
        let tiles = (self.outputs + tile - 1) / tile;
        let parts = self.pairs / (8 * PAIR_TILES) + self.experts.min(self.pairs);
        let groups = parts.checked_mul(tiles)?.min(GROUPS);
        let mut constants = vec![
            dtype("TX", self.dtype),
            dtype("TO", self.dtype),
            int("CHOSEN", self.pairs_per_row),
            even(self.outputs % tile == 0),
            int("MT", PAIR_TILES),
            int("WN", WARPGROUPS),
            int("PRODUCERS", PRODUCERS),
        ];
        let (kernel, stages, stage) = match self.format {
            WeightFormat::Dense => (&WMM_GROUPED, STAGES, (tile + 8 * PAIR_TILES) * 128),
            _ => {
                constants.extend(self.format.constants());
                let [less, more] = REGISTERS;
                constants.extend([whole(self.inputs), int("LESS", less), int("MORE", more)]);
                (&WMM_GROUPED_PACKED, PACKED_STAGES, 8 * PAIR_TILES * 256)
            }
        };
        constants.extend([int("ST", stages), int("LAG", stages - 2), int("SHARED", stages * stage)]);
        let outputs = vec![(vec![self.pairs, self.outputs], self.dtype)];
        let threads = (4 * WARPGROUPS + PRODUCERS) * 32;
        Some(Plan { kernel, constants, groups: [groups, 1, 1], threads, outputs })
    }
}

/// Rows in the order in which products with packed weights read them. Input and output: `[rows, inputs]` of a dtype of 16 bits, `inputs` a multiple of
/// 64. One program for any number of rows. `None` for other shapes and formats.
pub fn lane_order_plan([rows, inputs]: [i32; 2], dtype_of: Dtype, format: WeightFormat) -> Option<Plan> {
    let size = rows.checked_mul(inputs)?;
    if rows < 1 || inputs < 1 || inputs % 64 != 0 {
        return None;
    }
    if !is_half_width(dtype_of) || format == WeightFormat::Dense {
        return None;
    }
    Some(Plan {
        kernel: &LANE_ORDER,
        constants: vec![int("BITS", format.bits()), int("NT", LANE_ORDER_THREADS)],
        groups: [(size / 8 - 1) / LANE_ORDER_THREADS + 1, 1, 1],
        threads: LANE_ORDER_THREADS,
        outputs: vec![(vec![rows, inputs], dtype_of)],
    })
}

/// Rows of `x` `[rows, inputs]` times the weights of experts `[experts, outputs, inputs]`: `[pairs, outputs]`. `order`,
/// `starts`: the pairs sorted by expert, see [`expert_rows`](super::expert_rows). `None` where there is no kernel.
pub fn grouped_product(
    x: &Array,
    [order, starts]: [&Array; 2],
    weight: FewRowsWeight<'_>,
) -> Result<Option<Array>> {
    let dtype = x.dtype()?;
    let Some(Stored { format, w, scales, biases }) = weight.stored(dtype)? else { return Ok(None) };
    let (&[rows, inputs], &[experts, outputs, _]) = (x.shape(), w.shape()) else { return Ok(None) };
    let pairs = order.size() as i32;
    if rows < 1 || pairs % rows != 0 {
        return Ok(None);
    }
    let product =
        GroupedProduct { dtype, format, pairs, pairs_per_row: pairs / rows, experts, inputs, outputs };
    let dialect = Dialect::of(device::backend());
    let Some(plan) = dialect.and_then(|dialect| product.plan(dialect, MatrixUnit::of_device())) else {
        return Ok(None);
    };
    let made = match lane_order_plan([rows, inputs], dtype, format) {
        Some(ordered) => match ordered.call(&[x])?.pop() {
            Some(x) => plan.call(&[&x, w, scales, biases, order, starts])?.pop(),
            None => None,
        },
        None => plan.call(&[x, w, order, starts])?.pop(),
    };
    made.map(Some).ok_or_else(|| Error::new("a product with experts"))
}
