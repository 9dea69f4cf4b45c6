//! Names and shapes of its tensors.

use super::{CompressedAttention, Compressor, EntryIndexer};
use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;
use crate::spec::Tensors;

impl Tensors for CompressedAttention {
    fn name_tensors(&self, at: &mut Scope) {
        let (hidden, head_dim, norm) = (at.hidden, self.head_dim(), Norm::Rms { eps: self.norm_eps });
        at.replicated("q_a_proj", hidden, self.query_dim, false);
        at.norm("q_a_norm", norm, self.query_dim);
        at.heads("q_b_proj", self.query_dim, self.heads * head_dim, false);
        at.replicated("kv_proj", hidden, head_dim, false);
        at.norm("kv_norm", norm, head_dim);
        let of_group = self.heads / self.out_groups.max(1) * head_dim;
        at.matrices(TensorRole::Heads, "o_a_proj", [self.out_groups, self.out_rank, of_group], false);
        at.row("o_b_proj", self.out_groups * self.out_rank, hidden, false);
        at.tensor("sinks", &[self.heads], TensorRole::Heads);
        if let Some(compressor) = self.compressor() {
            compressor.name_tensors(&mut at.at("compressor"), norm);
        }
        if let Some(indexer) = self.indexer() {
            let keys = self.compressor().and_then(|compressor| compressor.keys);
            let mut scope = at.at("indexer");
            indexer.name_tensors(&mut scope, self.query_dim);
            if let Some(keys) = keys {
                scope.replicated("k_proj", head_dim, keys.width, false);
                scope.norm("k_norm", norm, keys.width);
            }
        }
    }
}

impl Compressor {
    fn name_tensors(&self, at: &mut Scope, norm: Norm) {
        let (hidden, width) = (at.hidden, self.entries.width);
        at.replicated("kv_proj", hidden, width, false);
        if self.open.is_some() {
            at.replicated("gate_proj", hidden, width, false);
        }
        at.norm("kv_norm", norm, width);
    }
}

impl EntryIndexer {
    fn name_tensors(&self, at: &mut Scope, query_dim: usize) {
        let hidden = at.hidden;
        at.replicated("q_b_proj", query_dim, self.heads * self.width, false);
        at.replicated("weights_proj", hidden, self.heads, false);
    }
}
