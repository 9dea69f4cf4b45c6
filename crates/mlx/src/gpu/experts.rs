//! Products of rows with the weights of the experts that were chosen for them, on tensor cores.

use super::WeightFormat;
use super::linear::{FewRowsWeight, MatrixUnit, SHARED_MAX, Stored, even, is_half_width, units, whole};
use super::plan::{Plan, dtype, int};
use super::source::{Dialect, EXPERT_ROWS, WMM_EXPERT, WMM_EXPERT_FLOW, WMM_EXPERTS};
use crate::array::Array;
use crate::device;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// Products of rows of bf16 or f16 with the weights of experts, `[experts, outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertProduct {
    /// Of the rows, and of what is not packed in the weights.
    pub dtype: Dtype,
    /// How the weights are stored.
    pub format: WeightFormat,
    /// What multiplies matrices.
    pub unit: MatrixUnit,
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

/// Pairs of a row and an expert that [`expert_rows`] sorts at a time, in two classes: the second, up to so many experts.
const SORTED_PAIRS: [i32; 2] = [1024, 2048];
const EXPERTS_OF_MORE_PAIRS: i32 = 256;
/// The most pairs of [`expert_rows`]: it takes some microseconds for each time.
const PAIRS_MAX: i32 = 1 << 17;
/// Pairs of an expert, on average, that a product has at most: with more, unpacked weights are faster.
const PAIRS_OF_EXPERT_MAX: i32 = 48;
/// The most experts of [`expert_rows`].
const EXPERTS_MAX: i32 = 512;
/// Up to so many pairs are multiplied one by one. More are sorted by expert first, so that an expert's weights are read
/// once for all its pairs.
const ONE_BY_ONE_MAX: i32 = 16;

/// Of the product by persistent groups: groups, simd groups of each, and tiles of 16 rows of `w` that a simd group multiplies
/// together. With so many pairs of an expert a ring of three units is faster than one of two; with more the room is better used for rows of
/// `x`. Measured on an H200 with 128 experts, and with 64.
const FLOW_GROUPS: i32 = 132;
const FLOW_SIMDS: i32 = 8;
const FLOW_ROW_TILES: i32 = 2;
const FLOW_PAIRS_OF_THREE_STAGES: std::ops::Range<i32> = 12..20;
/// Pairs of an expert, on average, that it has at most. Measured on an H200 with 128 experts of 2,048 to 1,536, in us, with grouped products
/// ([`GroupedProduct`](super::GroupedProduct)) behind it: 136 and 170 with 16 pairs, 191 and 186 with 32, 227 and 210 with 48, 286 and 232 with 64.
const FLOW_PAIRS_OF_EXPERT_MAX: i32 = 40;
/// Tiles of 8 rows of `x` that it has in shared memory at most.
const FLOW_COLUMNS_MAX: i32 = 4;

impl ExpertProduct {
    /// Whether pairs must be sorted by expert, see [`expert_rows`].
    pub fn sorts(&self) -> bool {
        self.pairs > ONE_BY_ONE_MAX
    }

    /// Tiles of 8 pairs that share a reading of their expert's weights: most experts have no more.
    fn row_tiles(&self) -> i32 {
        match self.pairs / self.experts {
            0..=5 => 1,
            6..=11 => 2,
            _ => 4,
        }
    }

    /// Inputs: `x` `[rows, inputs]`; weights, scales and biases (any arrays for dense weights) with the experts as
    /// first axis; the pairs' experts `[pairs]` u32, or, if it [sorts](Self::sorts), the two arrays of [`expert_rows`] or others like them.
    /// Output: `[pairs, outputs]`. `None` for sizes and dtypes without a kernel, and but for CUDA.
    pub fn plan(&self, dialect: Dialect) -> Option<Plan> {
        let fits = self.format.fits(self.inputs) && self.outputs > 0 && self.outputs % 16 == 0;
        let has_kernel = (1..=EXPERTS_MAX).contains(&self.experts) && self.pairs >= 1;
        if !fits || !has_kernel || !is_half_width(self.dtype) || dialect != Dialect::Cuda {
            return None;
        }
        if let Some(plan) = self.flow() {
            return Some(plan);
        }
        if self.pairs > sorted_pairs(self.experts).max(self.experts * PAIRS_OF_EXPERT_MAX) {
            return None;
        }
        // Simd groups that share outputs, and those that share inputs. Measured on an H200 with 128 experts.
        let (kernel, of_pairs, output_simds, input_simds) = match self.sorts() {
            false => (&WMM_EXPERT, self.pairs, 1, 4.min(units(self.inputs))),
            true => (&WMM_EXPERTS, self.experts, 4, 1),
        };
        let mut constants = self.format.constants().to_vec();
        constants.extend([
            dtype("TX", self.dtype),
            dtype("TO", self.dtype),
            int("PITCH", 0),
            whole(self.inputs),
            even(true),
            int("MT", self.row_tiles()),
            int("RT", 1),
            int("WN", output_simds),
            int("WK", input_simds),
            int("CHOSEN", self.pairs_per_row),
        ]);
        let outputs = vec![(vec![self.pairs, self.outputs], self.dtype)];
        let groups = [(self.outputs + 16 * output_simds - 1) / (16 * output_simds), of_pairs, 1];
        Some(Plan { kernel, constants, groups, threads: output_simds * input_simds * 32, outputs })
    }

    /// Sorted pairs with weights of 4 bits, by a group on each multiprocessor, where there is shared memory for rows of `x`.
    fn flow(&self) -> Option<Plan> {
        let WeightFormat::Four { group: group @ (64 | 128) } = self.format else { return None };
        let whole = self.inputs % 256 == 0 || (self.inputs % 128 == 0 && group == 64);
        let fits = whole && self.outputs % (16 * FLOW_ROW_TILES) == 0;
        let few = self.pairs <= sorted_pairs(self.experts).max(self.experts * FLOW_PAIRS_OF_EXPERT_MAX);
        if !self.sorts() || !fits || !few || self.unit != MatrixUnit::Warpgroup {
            return None;
        }
        let stage = FLOW_ROW_TILES * (16 * 128 + 16 * 2 * (512 / group));
        let stages = if FLOW_PAIRS_OF_THREE_STAGES.contains(&(self.pairs / self.experts)) { 3 } else { 2 };
        let slot = self.inputs * 16 + self.inputs / 64 * 32;
        let ring = FLOW_SIMDS * stages * stage;
        let columns = ((SHARED_MAX - ring) / slot).min(FLOW_COLUMNS_MAX);
        if columns < 1 {
            return None;
        }
        let mut constants = self.format.constants().to_vec();
        constants.extend([
            dtype("TX", self.dtype),
            dtype("TO", self.dtype),
            int("RT", FLOW_ROW_TILES),
            int("WN", FLOW_SIMDS),
            int("ST", stages),
            int("COLUMNS", columns),
            int("KMAX", self.inputs),
            int("EXPERTS", self.experts),
            int("CHOSEN", self.pairs_per_row),
            int("SHARED", ring + columns * slot),
        ]);
        let outputs = vec![(vec![self.pairs, self.outputs], self.dtype)];
        let (groups, threads) = ([FLOW_GROUPS, 1, 1], FLOW_SIMDS * 32);
        Some(Plan { kernel: &WMM_EXPERT_FLOW, constants, groups, threads, outputs })
    }
}

/// Pairs that [`expert_rows`] sorts at a time: what it counts lies in threadgroup memory.
fn sorted_pairs(experts: i32) -> i32 {
    let [few, more] = SORTED_PAIRS;
    if experts <= EXPERTS_OF_MORE_PAIRS { more } else { few }
}

/// Sorts pairs by expert. Input: experts `[pairs]` u32. Outputs: the pairs in the order of their experts `[pairs]` i32, and
/// where an expert's begin in it `[experts + 1]` i32. `None` for sizes without a kernel, and but for CUDA.
pub fn expert_rows_plan(pairs: i32, experts: i32, dialect: Dialect) -> Option<Plan> {
    let fits = (1..=PAIRS_MAX).contains(&pairs) && (1..=EXPERTS_MAX).contains(&experts);
    if !fits || dialect != Dialect::Cuda {
        return None;
    }
    let [few, more] = SORTED_PAIRS;
    let simds = (few / 32).min(16);
    let most = if pairs <= few { few } else { more.min(sorted_pairs(experts)) };
    let constants = vec![int("E", experts), int("NS", simds), int("PMAX", most)];
    // MLX keeps arrays of a few bytes in managed memory.
    let outputs = vec![(vec![pairs], Dtype::I32), (vec![(experts + 1).max(64)], Dtype::I32)];
    Some(Plan { kernel: &EXPERT_ROWS, constants, groups: [1, 1, 1], threads: simds * 32, outputs })
}

/// Pairs sorted by expert, see [`expert_rows_plan`]. `experts`: `[pairs]` u32, each below `count`.
pub fn expert_rows(experts: &Array, count: i32) -> Result<Option<[Array; 2]>> {
    let dialect = Dialect::of(device::backend());
    let Some(plan) = dialect.and_then(|dialect| expert_rows_plan(experts.size() as i32, count, dialect))
    else {
        return Ok(None);
    };
    let made: std::result::Result<[Array; 2], _> = plan.call(&[experts])?.try_into();
    made.map(Some).map_err(|_| Error::new("an order and its starts"))
}

/// The product of `pairs` rows of `x` with experts `weight`, where it has a kernel.
fn product_of(x: &Array, pairs: i32, stored: &Stored<'_>) -> Result<Option<ExpertProduct>> {
    let (dtype, unit) = (x.dtype()?, MatrixUnit::of_device());
    let (&[rows, inputs], &[experts, outputs, _]) = (x.shape(), stored.w.shape()) else { return Ok(None) };
    let (format, pairs_per_row) = (stored.format, pairs / rows.max(1));
    Ok(Some(ExpertProduct { dtype, format, unit, pairs, pairs_per_row, experts, inputs, outputs }))
}

/// Whether persistent groups multiply so many pairs with packed weights: faster than unpacked weights.
pub fn experts_flow(x: &Array, pairs: i32, weight: FewRowsWeight<'_>) -> Result<bool> {
    let Some(stored) = weight.stored(x.dtype()?)? else { return Ok(false) };
    let product = product_of(x, pairs, &stored)?;
    let on_cuda = Dialect::of(device::backend()) == Some(Dialect::Cuda);
    Ok(on_cuda && product.is_some_and(|product| is_half_width(product.dtype) && product.flow().is_some()))
}

/// Rows of `x` `[rows, inputs]` of bf16 or f16 times the weights of experts: `[pairs, outputs]`. `experts`: `[pairs]` u32;
/// `sorted`: gives what [`expert_rows`] makes of them, where it is needed. `None` where there is no kernel.
pub fn expert_product(
    x: &Array,
    experts: &Array,
    weight: FewRowsWeight<'_>,
    sorted: impl FnOnce() -> Result<Option<[Array; 2]>>,
) -> Result<Option<Array>> {
    let Some(stored) = weight.stored(x.dtype()?)? else { return Ok(None) };
    let Some(product) = product_of(x, experts.size() as i32, &stored)? else { return Ok(None) };
    let Stored { w, scales, biases, .. } = stored;
    let Some(plan) = Dialect::of(device::backend()).and_then(|dialect| product.plan(dialect)) else {
        return Ok(None);
    };
    let made = match product.sorts() {
        false => plan.call(&[x, w, scales, biases, experts])?,
        true => match sorted()? {
            Some([order, starts]) => plan.call(&[x, w, scales, biases, &order, &starts])?,
            None => return Ok(None),
        },
    };
    Ok(made.into_iter().next())
}
