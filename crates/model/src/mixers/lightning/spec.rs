//! Lightning attention: what a layer computes, its rules, tensors, state and scratch memory.

use crate::manifest::{Scope, TensorRole};
use crate::mixers::Recurrence;
use crate::norm::Norm;
use crate::rope::Position;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// Linear attention: a head's state is the sum of the products of keys and values, each row's times `exp(−slope)` for every
/// row after it. Output: `sigmoid(gate) · norm(y)`.
///
/// Source: arXiv 2401.04658.
#[derive(Debug, Clone, PartialEq)]
pub struct Lightning {
    /// Heads of queries, keys and values.
    pub heads: usize,
    /// Width of each.
    pub head_dim: usize,
    /// How fast each head forgets.
    pub slopes: Vec<f32>,
    /// How queries and keys rotate.
    pub position: Position,
    /// RMS norm of each head's queries and keys.
    pub qk_norm: bool,
    /// Bias on the q, k and v projections.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub out_bias: bool,
    /// Parts of the output that are normalised each on its own.
    pub norm_groups: usize,
    /// Of all norms.
    pub norm_eps: f32,
}

impl Lightning {
    /// ALiBi's slopes, of which layer `index` of `layers` takes a share: the later, the less it forgets.
    pub fn slopes_at(heads: usize, index: usize, layers: usize) -> Vec<f32> {
        let powers = |heads: usize| {
            let base = 2f64.powf(-8.0 / heads as f64);
            (1..=heads).map(move |head| base.powi(head as i32))
        };
        let whole = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
        let between = powers(2 * whole).step_by(2).take(heads - whole);
        let share = 1.0 - index as f64 / layers.saturating_sub(1).max(1) as f64 + 1e-5;
        powers(whole).chain(between).map(|slope| (slope * share) as f32).collect()
    }

    /// Width of the heads together.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }
}

impl Rules for Lightning {
    fn check_rules(&self, broken: &mut Broken) {
        let heads = ("num_attention_heads", self.heads);
        broken.size(&[heads, ("head_dim", self.head_dim), ("head_dim", self.head_dim)]);
        broken.divides(("group_norm_size", self.norm_groups), ("the width of the heads", self.inner()));
        broken.position(&self.position, self.head_dim);
    }
}

impl Tensors for Lightning {
    fn name_tensors(&self, at: &mut Scope) {
        for name in ["q_proj", "k_proj", "v_proj"] {
            at.heads(name, at.hidden, self.inner(), self.qkv_bias);
        }
        if self.qk_norm {
            at.norm("q_norm", Norm::Rms { eps: self.norm_eps }, self.head_dim);
            at.norm("k_norm", Norm::Rms { eps: self.norm_eps }, self.head_dim);
        }
        at.heads("g_proj", at.hidden, self.inner(), false);
        at.norm_as(TensorRole::Heads, "g_norm", Norm::Rms { eps: self.norm_eps }, self.inner());
        at.row("o_proj", self.inner(), at.hidden, self.out_bias);
    }
}

impl Recurrence for Lightning {
    /// There is no convolution; the state is `[heads, head_dim, head_dim]`, by key and value.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![1], vec![self.heads, self.head_dim, self.head_dim]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for Lightning {
    /// Queries, keys, values, the recurrence's output, gates, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        8 * self.inner() + hidden
    }
}
