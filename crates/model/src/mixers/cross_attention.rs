//! Cross attention: rows of a sequence attend to the rows of a picture, which stand outside the sequence.
//!
//! Invariant: caches nothing. Keys and values of pictures are made once for each ([`keys_and_values`]) and are inputs of a
//! pass.
//!
//! [`keys_and_values`]: crate::Model::cross_states

mod forward;

use super::{MixerCache, MixerSpec};
use crate::Norm;
use crate::manifest::Scope;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

pub(crate) use forward::CrossAttentionBlock;

/// Softmax attention to rows outside the sequence, without positions.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct CrossAttention {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Of each head's queries and keys.
    pub norm: Norm,
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
        at.linear("q_proj", hidden, width, false);
        at.linear("k_proj", hidden, self.kv_heads * self.head_dim, false);
        at.linear("v_proj", hidden, self.kv_heads * self.head_dim, false);
        at.linear("o_proj", width, hidden, false);
        ["q_norm", "k_norm"].iter().for_each(|name| at.norm(name, self.norm, self.head_dim));
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
