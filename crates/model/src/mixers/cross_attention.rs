//! Cross attention: rows of a sequence attend to the rows of a picture or of a sound, which stand outside the sequence.
//!
//! Invariant: caches nothing. Keys and values of such rows are made once for each ([`keys_and_values`]) and are inputs of a
//! pass.
//!
//! [`keys_and_values`]: crate::Model::cross_states

mod forward;
mod weights;

use super::{MixerCache, MixerSpec};
use crate::manifest::Scope;
use crate::norm::Norm;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

pub(crate) use forward::CrossAttentionBlock;

/// Names of the norms of queries and keys.
const NORMS: [&str; 2] = ["q_norm", "k_norm"];

/// Softmax attention to rows outside the sequence, without positions.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct CrossAttention {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// On all projections.
    pub bias: bool,
    /// Of each head's queries and keys.
    pub norm: Option<Norm>,
    /// Which of the model's layers of cross attention it is.
    pub number: usize,
}

impl Rules for CrossAttention {
    fn check_rules(&self, broken: &mut Broken) {
        broken.size(&[("head_dim", self.head_dim)]);
        broken.divides(("num_key_value_heads", self.kv_heads), ("num_attention_heads", self.heads));
    }
}

impl Tensors for CrossAttention {
    fn name_tensors(&self, at: &mut Scope) {
        let (hidden, width) = (at.hidden, self.heads * self.head_dim);
        at.heads("q_proj", hidden, width, self.bias);
        at.heads("k_proj", hidden, self.kv_heads * self.head_dim, self.bias);
        at.heads("v_proj", hidden, self.kv_heads * self.head_dim, self.bias);
        at.row("o_proj", width, hidden, self.bias);
        for (name, norm) in NORMS.into_iter().filter_map(|name| Some((name, self.norm?))) {
            at.norm(name, norm, self.head_dim);
        }
    }
}

impl Footprint for CrossAttention {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * self.heads * self.head_dim + hidden
    }
}

impl MixerSpec for CrossAttention {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        Vec::new()
    }
}
