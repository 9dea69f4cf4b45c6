//! [`TokenShift`] and [`Wkv`]: what RWKV's layers compute between their projections, in place in each sequence's slot.

use omnibus_cpu_kernels::{self as kernels, Kernel};

use super::{Op, Output, node, size};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;

/// Mixes of each row with the row before it in its sequence. All arrays are float32 but the runs, and the pool is changed
/// in place, as by [`CausalConv`](super::CausalConv).
#[derive(Debug)]
pub struct TokenShift<'a> {
    /// `[rows, width]`
    pub x: &'a Array,
    /// `[mixes, width]`: how much of the change from a row to the one before each mix has.
    pub shares: &'a Array,
    /// As for [`CausalConv`](super::CausalConv).
    pub runs: &'a Array,
    /// `[slots, 1, width]`: the rows before.
    pub pool: Array,
}

impl TokenShift<'_> {
    /// The mixes, `[rows, width]` each, and the pool.
    pub fn run(self) -> Result<(Vec<Array>, Array)> {
        let inputs = [self.x, self.shares, self.runs, &self.pool];
        let op = Op { name: "cpu::token_shift", inputs: &inputs };
        op.want_f32(&[self.x, self.shares, &self.pool].map(Some))?;
        let (runs, rows) = op.runs(self.runs, self.x)?;
        let &[mixes, width] = self.shares.shape() else { return Err(op.fail("shares have two axes")) };
        op.require(self.x.dim(1)? == width, "shares are as wide as rows")?;
        let &[slots, 1, pooled] = self.pool.shape() else {
            return Err(op.fail("the pool is [slots, 1, width]"));
        };
        op.require(pooled == width, "the pool is as wide as rows")?;
        let kernel = kernels::Shift {
            rows,
            width: width as usize,
            mixes: mixes as usize,
            runs,
            slots: slots as usize,
        };
        let mix = Output { shape: self.x.shape(), dtype: Dtype::F32, shares: None };
        let mut outputs = vec![mix; mixes as usize];
        outputs.push(Output { shape: self.pool.shape(), dtype: Dtype::F32, shares: Some(3) });
        let mut made = node(&op, Kernel::Shift(kernel), &inputs, &outputs)?;
        match made.pop() {
            Some(pool) => Ok((made, pool)),
            None => Err(op.fail("MLX made no array")),
        }
    }
}

/// RWKV-7's recurrence. All arrays are float32 but the runs, and the pool is changed in place, as by
/// [`CausalConv`](super::CausalConv).
///
/// With `â = sigmoid(rate)` and `k̂` the key times `k_k` at length one, a head's state `S` becomes
/// `S · diag(e^(−e^(−1/2) · sigmoid(decay))) − (S · k̂)(k̂ ∘ â)ᵀ + v (k ∘ (1 + (â − 1) ∘ k_a))ᵀ`.
#[derive(Debug)]
pub struct Wkv<'a> {
    /// Receptance, decay, key, value, rate and gate as projected, `[rows, heads · dim]` each.
    pub rows: [&'a Array; 6],
    /// How much of the first layer's values is in a value, before the sigmoid, and those values; `[rows, heads · dim]`.
    pub first_values: Option<[&'a Array; 2]>,
    /// `k_k`, `k_a`, `r_k`, and weight and bias of the norm of what is read, `[heads, dim]` each.
    pub weights: [&'a Array; 5],
    /// As for [`CausalConv`](super::CausalConv).
    pub runs: &'a Array,
    /// `[slots, heads, dim, dim]`
    pub pool: Array,
}

/// Where the pool is among the inputs.
const POOL: usize = 12;

impl Wkv<'_> {
    /// `gate · (norm(S r) + (r · (k ∘ r_k)) v)`, `[rows, heads · dim]`, and the pool.
    pub fn run(self) -> Result<(Array, Array)> {
        let mut inputs: Vec<&Array> = self.rows.into_iter().chain(self.weights).collect();
        inputs.extend([self.runs, &self.pool]);
        inputs.extend(self.first_values.into_iter().flatten());
        let op = Op { name: "cpu::wkv", inputs: &inputs };
        let floats = inputs.iter().filter(|input| !std::ptr::eq(**input, self.runs));
        op.want_f32(&floats.map(|input| Some(*input)).collect::<Vec<_>>())?;
        let [receptance, ..] = self.rows;
        let (runs, rows) = op.runs(self.runs, receptance)?;
        let &[slots, heads, dim, keys] = self.pool.shape() else {
            return Err(op.fail("the pool has four axes"));
        };
        op.require(dim == keys && dim > 0 && heads > 0, "the pool has a square matrix per head")?;
        let shape = [size(rows)?, heads * dim];
        let of_rows = self.rows.into_iter().chain(self.first_values.into_iter().flatten());
        op.require(of_rows.into_iter().all(|x| x.shape() == shape), "rows hold all heads")?;
        op.require(self.weights.iter().all(|w| w.shape() == [heads, dim]), "weights are [heads, dim]")?;
        let kernel = kernels::Wkv {
            rows,
            heads: heads as usize,
            dim: dim as usize,
            mixes_values: self.first_values.is_some(),
            runs,
            slots: slots as usize,
        };
        op.with_pool(Kernel::Wkv(kernel), &inputs, &shape, POOL)
    }
}
