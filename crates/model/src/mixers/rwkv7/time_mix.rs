//! RWKV-7's time mixing: what a layer computes, its rules, tensors, states and scratch memory.

use crate::manifest::{Scope, TensorRole};
use crate::mixers::token_shift::TokenShift;
use crate::mixers::{MixerCache, MixerSpec, Recurrence};
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// Time mixing. A head's state `S` becomes `S · diag(w) + (S · a) bᵀ + v kᵀ`, and its output is `S · r`.
///
/// Source: arXiv 2503.14456 §4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeMix {
    /// The row before, which all projections see a share of.
    pub shift: TokenShift,
    /// The heads' matrices.
    pub state: WkvState,
    /// Width of the vectors that decays, rates, values' shares and gates come from.
    pub ranks: [usize; 4],
    /// The first layer's values are mixed into those of later layers.
    pub mixes_first_values: bool,
}

/// A matrix for each head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WkvState {
    pub heads: usize,
    pub head_dim: usize,
}

impl Recurrence for WkvState {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![1], vec![self.heads, self.head_dim, self.head_dim]]
    }
}

/// Shares of the row before in what each projection sees: receptance, decay, key, value, rate, gate.
pub(super) const SHARES: [&str; 6] = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"];

impl TimeMix {
    pub(super) fn inner(&self) -> usize {
        self.state.heads * self.state.head_dim
    }

    /// The narrow projections, their widths, and whether they end with a bias.
    pub(super) fn narrow(&self) -> impl Iterator<Item = (&'static str, usize, bool)> {
        let [w, a, v, g] = self.ranks;
        let value = self.mixes_first_values.then_some(("v_lora", v, true));
        [("w_lora", w, true), ("a_lora", a, true), ("g_lora", g, false)].into_iter().chain(value)
    }
}

impl Rules for TimeMix {
    fn check_rules(&self, broken: &mut Broken) {
        let (heads, dim) = (("heads", self.state.heads), ("head_dim", self.state.head_dim));
        broken.size(&[heads, dim, dim]);
        for rank in self.ranks {
            broken.size(&[("low_rank_dim", rank)]);
        }
    }
}

impl Tensors for TimeMix {
    fn name_tensors(&self, at: &mut Scope) {
        let (hidden, by_head) = (at.hidden, [self.state.heads, self.state.head_dim]);
        for share in SHARES {
            at.tensor(share, &[hidden], TensorRole::Replicated);
        }
        for name in ["k_k", "k_a", "r_k", "g_norm.weight", "g_norm.bias"] {
            at.tensor(name, &by_head, TensorRole::Heads);
        }
        for name in ["r_proj", "k_proj", "v_proj"] {
            at.heads(name, hidden, self.inner(), false);
        }
        for (name, rank, bias) in self.narrow() {
            at.replicated(&format!("{name}.lora.0"), hidden, rank, false);
            at.heads(&format!("{name}.lora.2"), rank, self.inner(), bias);
        }
        at.row("o_proj", self.inner(), hidden, false);
    }
}

impl MixerSpec for TimeMix {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        vec![&self.shift, &self.state]
    }
}

impl Footprint for TimeMix {
    /// Six shares, as many projections, the recurrence's inputs and output, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        8 * hidden + 16 * self.inner() + self.ranks.iter().sum::<usize>()
    }
}
