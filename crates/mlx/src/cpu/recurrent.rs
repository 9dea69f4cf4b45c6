//! [`CausalConv`] and [`Recurrence`]: what layers with a state for each sequence compute, in place in its slot.

use omnibus_cpu_kernels::{self as kernels, Kernel};

use super::{Op, Output, node, size};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;

/// Convolves each channel with its own weights over the last `kernel_size` rows of its sequence, and applies silu. All
/// arrays are float32 but the runs.
///
/// The pool is changed in place, even if a step that reads it is still running, so only the one returned may be
/// used afterwards.
#[derive(Debug)]
pub struct CausalConv<'a> {
    /// `[rows, _]`, with the channels from `offset` on.
    pub x: &'a Array,
    /// Where the channels begin in a row of `x`.
    pub offset: i32,
    /// `[kernel_size, channels]`, the oldest first.
    pub weight: &'a Array,
    /// `[channels]`
    pub bias: Option<&'a Array>,
    /// i32 `[n, 4]`: first row, length, the slot that the state after these rows is written to, and the slot of the state
    /// before them: the same, that of the run before, or −1 for zeros. Rows of no run give zeros.
    pub runs: &'a Array,
    /// `[slots, kernel_size - 1, channels]`: the rows before.
    pub pool: Array,
}

impl CausalConv<'_> {
    /// The convolved rows, `[rows, channels]`, and the pool.
    pub fn run(self) -> Result<(Array, Array)> {
        let mut inputs = vec![self.x, self.weight, self.runs, &self.pool];
        inputs.extend(self.bias);
        let op = Op { name: "cpu::causal_conv", inputs: &inputs };
        op.want_f32(&[Some(self.x), Some(self.weight), Some(&self.pool), self.bias])?;
        let (runs, rows) = op.runs(self.runs, self.x)?;
        let &[kernel_size, channels] = self.weight.shape() else {
            return Err(op.fail("weights have two axes"));
        };
        let &[slots, ..] = self.pool.shape() else { return Err(op.fail("the pool has three axes")) };
        op.require(kernel_size > 0 && channels > 0, "kernel size and channels are positive")?;
        op.require(
            self.pool.shape() == [slots, kernel_size - 1, channels],
            "the pool is [slots, kernel_size - 1, channels]",
        )?;
        op.require(self.bias.is_none_or(|bias| bias.shape() == [channels]), "a bias per channel")?;
        let stride = self.x.dim(-1)?;
        op.require(
            self.offset >= 0 && self.offset.checked_add(channels).is_some_and(|end| end <= stride),
            "the channels lie within a row",
        )?;
        let kernel = Kernel::Conv(kernels::Conv {
            rows,
            stride: stride as usize,
            offset: self.offset as usize,
            channels: channels as usize,
            kernel_size: kernel_size as usize,
            bias: self.bias.is_some(),
            runs,
            slots: slots as usize,
        });
        let shape = [size(rows)?, channels];
        op.with_pool(kernel, &inputs, &shape, 3)
    }
}

/// A recurrence whose state is a matrix for each head. All arrays are float32 but the runs, and the pool is changed
/// in place, as by [`CausalConv`].
#[derive(Debug)]
pub struct Recurrence<'a> {
    /// How the state changes.
    pub rule: Rule<'a>,
    /// Heads with keys and queries of their own, which divides `heads`.
    pub key_heads: i32,
    /// Heads of the values.
    pub heads: i32,
    /// `[rows, heads · value_dim + 2 · key_heads · key_dim]`: values, keys and queries for a state space; queries,
    /// keys and values for the delta rule.
    pub mixed: &'a Array,
    /// `[rows, _]`: holds the output's gate, `heads · value_dim`, from `gate` on, and each head's step from `step` on.
    pub projected: &'a Array,
    /// See `projected`.
    pub gate: i32,
    /// See `projected`.
    pub step: i32,
    /// `[heads]`: the logarithm of how fast the state decays.
    pub a_log: &'a Array,
    /// `[heads]`: added to the step.
    pub dt_bias: &'a Array,
    /// As for [`CausalConv`].
    pub runs: &'a Array,
    /// `[slots, heads, value_dim, key_dim]`
    pub pool: Array,
}

/// How a state changes with a row.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'a> {
    /// Mamba-2: `S = e^(−a·Δt) S + Δt·v·kᵀ`, giving `(S q + skip·v) · silu(gate)`.
    StateSpace {
        /// Least and most of the step Δt.
        limits: [f32; 2],
        /// `[heads]`
        skip: &'a Array,
    },
    /// Gated DeltaNet: `S = e^(−a·Δt) S; S += β·(v − S k)·kᵀ`, giving `norm(S q) · silu(gate)`; keys and queries
    /// are brought to length one, and queries divided by `√key_dim`.
    Delta {
        /// Where in `projected` the heads' β begin, before the sigmoid.
        write: i32,
        /// RMS norm of what is read, `[value_dim]`.
        norm: &'a Array,
        /// Added to the mean square.
        eps: f32,
    },
}

impl Recurrence<'_> {
    /// `[rows, heads · value_dim]`, and the pool.
    pub fn run(self) -> Result<(Array, Array)> {
        let third = match self.rule {
            Rule::StateSpace { skip, .. } => skip,
            Rule::Delta { norm, .. } => norm,
        };
        let inputs = [self.mixed, self.projected, self.a_log, self.dt_bias, third, self.runs, &self.pool];
        let op = Op { name: "cpu::recurrence", inputs: &inputs };
        op.want_f32(&[self.mixed, self.projected, self.a_log, self.dt_bias, third, &self.pool].map(Some))?;
        let (runs, rows) = op.runs(self.runs, self.mixed)?;
        let (heads, key_heads) = (self.heads, self.key_heads);
        op.require(heads > 0 && key_heads > 0 && heads % key_heads == 0, "key heads divide heads")?;
        let &[slots, _, value_dim, key_dim] = self.pool.shape() else {
            return Err(op.fail("the pool has four axes"));
        };
        op.require(
            self.pool.dim(1)? == heads && value_dim > 0 && key_dim > 0,
            "the pool has a matrix per head",
        )?;
        let (values, keys) = (heads * value_dim, key_heads * key_dim);
        op.require(self.mixed.dim(-1)? == values + 2 * keys, "a mixed row holds values, keys and queries")?;
        let &[projected_rows, projected] = self.projected.shape() else {
            return Err(op.fail("projected rows have two axes"));
        };
        op.require(projected_rows as usize == rows, "a projected row for each mixed one")?;
        let within = |at: i32, len: i32| at >= 0 && at.checked_add(len).is_some_and(|end| end <= projected);
        op.require(
            within(self.gate, values) && within(self.step, heads),
            "gates and steps lie within a row",
        )?;
        let per_head = self.a_log.shape() == [heads] && self.dt_bias.shape() == [heads];
        op.require(per_head, "a rate and a bias per head")?;
        let (rule, places) = match self.rule {
            Rule::StateSpace { limits: [low, high], skip } => {
                op.require(skip.shape() == [heads], "a factor per head")?;
                (kernels::Rule::StateSpace { low, high }, [0, values, values + keys])
            }
            Rule::Delta { write, norm, eps } => {
                op.require(within(write, heads), "what is written lies within a row")?;
                op.require(norm.shape() == [value_dim], "the norm has the length of a value")?;
                (kernels::Rule::Delta { write: write as usize, eps }, [2 * keys, keys, 0])
            }
        };
        let [values_at, keys_at, queries_at] = places.map(|place| place as usize);
        let kernel = Kernel::Recurrence(kernels::Recurrence {
            rule,
            rows,
            key_heads: key_heads as usize,
            heads: heads as usize,
            key_dim: key_dim as usize,
            value_dim: value_dim as usize,
            mixed: (values + 2 * keys) as usize,
            values: values_at,
            keys: keys_at,
            queries: queries_at,
            projected: projected as usize,
            gate: self.gate as usize,
            step: self.step as usize,
            runs,
            slots: slots as usize,
        });
        op.with_pool(kernel, &inputs, &[size(rows)?, values], 6)
    }
}

impl Op<'_> {
    pub(super) fn want_f32(&self, arrays: &[Option<&Array>]) -> Result<()> {
        for array in arrays.iter().flatten() {
            self.require(array.dtype()? == Dtype::F32, "all but runs and indices are float32")?;
        }
        Ok(())
    }

    /// How many runs, over how many rows.
    pub(super) fn runs(&self, runs: &Array, rows: &Array) -> Result<(usize, usize)> {
        let &[count, 4] = runs.shape() else { return Err(self.fail("runs have four numbers each")) };
        self.require(runs.dtype()? == Dtype::I32, "runs are int32")?;
        let &[rows, _] = rows.shape() else { return Err(self.fail("rows have two axes")) };
        Ok((count as usize, rows as usize))
    }

    /// A float32 output, and input `pool` changed in place.
    pub(super) fn with_pool(
        &self,
        kernel: Kernel,
        inputs: &[&Array],
        shape: &[i32],
        pool: usize,
    ) -> Result<(Array, Array)> {
        let outputs = [
            Output { shape, dtype: Dtype::F32, shares: None },
            Output { shape: inputs[pool].shape(), dtype: Dtype::F32, shares: Some(pool) },
        ];
        match <[Array; 2]>::try_from(node(self, kernel, inputs, &outputs)?) {
            Ok([out, pool]) => Ok((out, pool)),
            Err(_) => Err(self.fail("MLX did not make two arrays")),
        }
    }
}
