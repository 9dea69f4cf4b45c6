//! Products of many rows with the weights of the experts that were chosen for them (a grouped matrix product), by warpgroups.

use super::linear::{MatrixUnit, even, is_half_width};
use super::plan::{Plan, dtype, int};
use super::source::{Dialect, WMM_GROUPED};
use crate::array::Array;
use crate::device;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// Products of rows of bf16 or f16 with weights of experts that are not packed, `[experts, outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedProduct {
    /// Of the rows and the weights.
    pub dtype: Dtype,
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
/// of 768 to 2,048, and 16,384 pairs of which some experts have more than others: 346 to 368 and 210 to 221 us with four; 337 to 379 and
/// 243 to 254 with three and up to 160 pairs; 389 to 439 and 263 to 283 with two and up to 192.
const WARPGROUPS: i32 = 4;
const PRODUCERS: i32 = 4;
/// Stages of a group's weights and rows.
const STAGES: i32 = 4;

impl GroupedProduct {
    /// Inputs: `x` `[rows, inputs]`, the weights, and the two arrays of [`expert_rows`](super::expert_rows) or others like them.
    /// Output: `[pairs, outputs]`. `None` for sizes and dtypes without a kernel, and but for CUDA with warpgroups.
    pub fn plan(&self, dialect: Dialect, unit: MatrixUnit) -> Option<Plan> {
        let fits = self.inputs > 0 && self.inputs % 64 == 0 && self.outputs > 0 && self.experts > 0;
        let has_kernel =
            dialect == Dialect::Cuda && unit == MatrixUnit::Warpgroup && is_half_width(self.dtype);
        if !fits || !has_kernel || self.pairs < 1 {
            return None;
        }
        let tile = 64 * WARPGROUPS;
        let tiles = (self.outputs + tile - 1) / tile;
        let parts = self.pairs / (8 * PAIR_TILES) + self.experts.min(self.pairs);
        let groups = parts.checked_mul(tiles)?.min(GROUPS);
        let constants = vec![
            dtype("TX", self.dtype),
            dtype("TO", self.dtype),
            int("CHOSEN", self.pairs_per_row),
            even(self.outputs % tile == 0),
            int("MT", PAIR_TILES),
            int("WN", WARPGROUPS),
            int("PRODUCERS", PRODUCERS),
            int("ST", STAGES),
            int("LAG", STAGES - 2),
            int("SHARED", STAGES * (tile + 8 * PAIR_TILES) * 128),
        ];
        let outputs = vec![(vec![self.pairs, self.outputs], self.dtype)];
        let threads = (4 * WARPGROUPS + PRODUCERS) * 32;
        Some(Plan { kernel: &WMM_GROUPED, constants, groups: [groups, 1, 1], threads, outputs })
    }
}

/// Rows of `x` `[rows, inputs]` times the weights of experts `[experts, outputs, inputs]`: `[pairs, outputs]`. `order`,
/// `starts`: the pairs sorted by expert, see [`expert_rows`](super::expert_rows). `None` where there is no kernel.
pub fn grouped_product(x: &Array, [order, starts]: [&Array; 2], weight: &Array) -> Result<Option<Array>> {
    let dtype = x.dtype()?;
    let (&[rows, inputs], &[experts, outputs, columns]) = (x.shape(), weight.shape()) else {
        return Ok(None);
    };
    let pairs = order.size() as i32;
    if weight.dtype()? != dtype || columns != inputs || rows < 1 || pairs % rows != 0 {
        return Ok(None);
    }
    let product = GroupedProduct { dtype, pairs, pairs_per_row: pairs / rows, experts, inputs, outputs };
    let dialect = Dialect::of(device::backend());
    let Some(plan) = dialect.and_then(|dialect| product.plan(dialect, MatrixUnit::of_device())) else {
        return Ok(None);
    };
    let made = plan.call(&[x, weight, order, starts])?.pop();
    made.map(Some).ok_or_else(|| Error::new("a product with experts"))
}
