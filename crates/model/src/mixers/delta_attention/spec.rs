//! Delta attention: what a layer computes, its rules, tensors, state and scratch memory.

use crate::manifest::{Scope, TensorRole};
use crate::mixers::Recurrence;
use crate::norm::Norm;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// A recurrence that overwrites what its key already stored, with a decay for each head or each channel of its keys.
///
/// Source: arXiv 2510.26692 §3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeltaAttention {
    /// Heads of queries and keys.
    pub k_heads: usize,
    /// Heads of values; divisible by `k_heads`.
    pub v_heads: usize,
    /// Width of a head's query and key.
    pub k_dim: usize,
    /// Width of a head's value.
    pub v_dim: usize,
    /// Length of the causal convolutions.
    pub conv_kernel_size: usize,
    /// How a state decays.
    pub decay: Decay,
    /// Decays come from a vector this wide, if not from the stream.
    pub decay_rank: Option<usize>,
    /// How much is written is a sigmoid times this: 2 lets a state change its sign.
    pub write_scale: f32,
    /// What becomes of the gate before it multiplies the normed output.
    pub gate: DeltaGate,
    /// Gates come from a vector this wide, if not from the stream.
    pub gate_rank: Option<usize>,
    /// Of the RMS norm of each head's output.
    pub norm_eps: f32,
}

/// How a state decays at a row; `a` is projected from the stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decay {
    /// A head as a whole, by `exp(−exp(A) · softplus(a + b))`.
    PerHead,
    /// Each channel of a head's keys, likewise.
    PerChannel,
    /// Each channel, by `exp(bound · sigmoid(exp(A) · (a + b)))`: the bound is below zero.
    Bounded(f32),
}

/// What becomes of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DeltaGate {
    Silu,
    Sigmoid,
}

impl DeltaAttention {
    /// Width of all keys together.
    pub fn keys(&self) -> usize {
        self.k_heads * self.k_dim
    }

    /// Width of all values together.
    pub fn values(&self) -> usize {
        self.v_heads * self.v_dim
    }

    /// Decays of a row.
    pub(crate) fn decays(&self) -> usize {
        match self.decay {
            Decay::PerHead => self.v_heads,
            Decay::PerChannel | Decay::Bounded(_) => self.v_heads * self.k_dim,
        }
    }
}

impl Rules for DeltaAttention {
    fn check_rules(&self, broken: &mut Broken) {
        let k_heads = ("linear_num_key_heads", self.k_heads);
        let v_heads = ("linear_num_value_heads", self.v_heads);
        let (k_dim, v_dim) = (("linear_key_head_dim", self.k_dim), ("linear_value_head_dim", self.v_dim));
        broken.divides(k_heads, v_heads);
        broken.conv_kernel("short_conv_kernel_size", self.conv_kernel_size);
        broken.size(&[k_heads, k_dim]);
        broken.size(&[v_heads, v_dim]);
        broken.size(&[k_dim, v_dim]);
        if let Decay::Bounded(bound) = self.decay {
            broken.check(bound < 0.0, || format!("the lower bound of decays ({bound}) is below zero"));
        }
    }
}

impl Tensors for DeltaAttention {
    fn name_tensors(&self, at: &mut Scope) {
        for (name, width) in [("q", self.keys()), ("k", self.keys()), ("v", self.values())] {
            at.heads(&format!("{name}_proj"), at.hidden, width, false);
            at.conv(&format!("{name}_conv1d"), width, self.conv_kernel_size, false);
        }
        at.projection("f", self.decay_rank, self.decays());
        at.projection("g", self.gate_rank, self.values());
        at.heads("b_proj", at.hidden, self.v_heads, false);
        at.tensor("A_log", &[self.v_heads], TensorRole::Heads);
        at.tensor("dt_bias", &[self.decays()], TensorRole::Heads);
        at.norm("o_norm", Norm::Rms { eps: self.norm_eps }, self.v_dim);
        at.row("o_proj", self.values(), at.hidden, false);
    }
}

impl Recurrence for DeltaAttention {
    /// The convolutions' last rows, queries, keys and values together, and the state, `[v_heads, v_dim, k_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        let conv = vec![self.conv_kernel_size - 1, 2 * self.keys() + self.values()];
        [conv, vec![self.v_heads, self.v_dim, self.k_dim]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for DeltaAttention {
    /// Projections, the convolutions' output, decays, the recurrence's output, gates, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        2 * (2 * self.keys() + self.values()) + 2 * self.decays() + self.v_heads + 3 * self.values() + hidden
    }
}
