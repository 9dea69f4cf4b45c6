//! Weights of convolutions and recurrences, as [`Ops`](super::Ops) take them.

use crate::params::Param;
use mlx::Array;

/// A causal convolution of each channel and its activation, `silu`.
pub(crate) struct CausalConv {
    /// `[conv_kernel_size, channels]` f32, the oldest row first.
    pub(crate) weight: Param,
    /// `[channels]` f32.
    pub(crate) bias: Option<Param>,
}

/// Weights of a Mamba layer's recurrence.
#[derive(Clone, Copy)]
pub(crate) struct Mamba1Rows<'a> {
    /// `[inner, state_dim]` f32: how fast states decay, below zero.
    pub(crate) rate: &'a Array,
    /// `[inner]` f32.
    pub(crate) skip: &'a Array,
}

/// Weights between the projections of a Mamba-2 layer.
pub(crate) struct Mamba2Weights {
    pub(crate) conv: CausalConv,
    /// `[heads]` f32, all three.
    pub(crate) a_log: Param,
    pub(crate) dt_bias: Param,
    pub(crate) skip: Param,
}

/// Weights between the projections of a gated delta layer, or of delta attention.
pub(crate) struct GatedDeltaWeights {
    pub(crate) conv: CausalConv,
    /// `[v_heads]` f32.
    pub(crate) a_log: Param,
    /// One for each step, f32.
    pub(crate) dt_bias: Param,
    /// `[v_dim]`.
    pub(crate) norm: Param,
}

/// What delta attention's recurrence takes of the projections.
pub(crate) struct DeltaRows<'a> {
    /// Queries, keys and values before their convolution, `[T, 2 · keys + values]`.
    pub(crate) qkv: &'a Array,
    /// What decays are computed from, `[T, v_heads]` or `[T, v_heads · k_dim]`.
    pub(crate) steps: &'a Array,
    /// How much is written, before the sigmoid, `[T, v_heads]`.
    pub(crate) write: &'a Array,
    /// `[T, values]`
    pub(crate) gate: &'a Array,
}

/// What RWKV-7's recurrence takes of the projections, `[T, heads · head_dim]` each.
pub(crate) struct WkvRows<'a> {
    pub(crate) receptance: &'a Array,
    /// Before its sigmoid.
    pub(crate) decay: &'a Array,
    pub(crate) key: &'a Array,
    pub(crate) value: &'a Array,
    /// Before its sigmoid.
    pub(crate) rate: &'a Array,
    /// What the output is multiplied by.
    pub(crate) gate: &'a Array,
    /// How much of the first layer's values is in the values, before its sigmoid, and those.
    pub(crate) first_values: Option<[&'a Array; 2]>,
}

/// Weights of RWKV-7's recurrence, `[heads, head_dim]` f32 each.
pub(crate) struct WkvWeights {
    /// Of keys that are removed.
    pub(crate) k_k: Param,
    /// Of keys that are written.
    pub(crate) k_a: Param,
    /// Of the bonus.
    pub(crate) r_k: Param,
    /// Weight and bias.
    pub(crate) norm: [Param; 2],
}

impl WkvWeights {}

impl CausalConv {
    /// One convolution over the channels of several, end to end; all have a bias, or none.
    pub(crate) fn join(parts: Vec<Self>) -> mlx::Result<Self> {
        let first = parts.first().ok_or_else(|| mlx::Error::new("a convolution to join"))?;
        let weights: Vec<&Array> = parts.iter().map(|part| &*part.weight).collect();
        let biases: Vec<&Array> = parts.iter().filter_map(|part| part.bias.as_deref()).collect();
        let joined = |parts: &[&Array]| first.weight.map(|_| mlx::concatenate(parts, -1));
        let bias = if biases.is_empty() { None } else { Some(joined(&biases)?) };
        Ok(Self { weight: joined(&weights)?, bias })
    }

    /// `x`: `[n, len, channels]` f32, after `before`, `[n, conv_kernel_size − 1, channels]` → as many rows of the
    /// convolution, without its activation, and what comes before the next ones.
    pub(crate) fn forward(&self, x: &Array, before: &Array) -> mlx::Result<(Array, Array)> {
        let [count, len, channels] = x.dims()?;
        let size = self.weight.dim(0)?;
        let joined = mlx::concatenate(&[before, x], 1)?;
        let mut sum: Option<Array> = self.bias.as_deref().cloned();
        for tap in 0..size {
            let weight = self.weight.slice(&[tap, 0], &[tap + 1, channels])?;
            let term = joined.slice(&[0, tap, 0], &[count, tap + len, channels])? * weight;
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
        }
        let sum = sum.ok_or_else(|| mlx::Error::new("a convolution has a kernel"))?;
        Ok((sum, joined.slice(&[0, len, 0], &[count, len + size - 1, channels])?))
    }
}
