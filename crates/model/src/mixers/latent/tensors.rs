//! Names and shapes of a latent attention layer's tensors, as mlx-lm has them for absorbed products.

use super::LatentAttention;
use crate::manifest::{Scope, TensorRole};
use crate::mixers::OutputGate;
use crate::norm::Norm;
use crate::spec::Tensors;

impl Tensors for LatentAttention {
    fn name_tensors(&self, at: &mut Scope) {
        let (queries, norm) = (self.heads * self.query_head_dim(), Norm::Rms { eps: self.norm_eps });
        match self.query_dim {
            Some(width) => {
                at.replicated("q_a_proj", at.hidden, width, self.bias);
                at.norm("q_a_layernorm", norm, width);
                at.heads("q_b_proj", width, queries, false);
            }
            None => at.heads("q_proj", at.hidden, queries, false),
        }
        if let Some(indexer) = self.indexer() {
            indexer.name_tensors(&mut at.at("indexer"), self.query_dim.unwrap_or(0));
        }
        at.replicated("kv_a_proj_with_mqa", at.hidden, self.latent_dim + self.rope_dim, self.bias);
        at.norm("kv_a_layernorm", norm, self.latent_dim);
        at.matrices(TensorRole::Heads, "embed_q", [self.heads, self.latent_dim, self.nope_dim], false);
        at.matrices(TensorRole::Heads, "unembed_out", [self.heads, self.v_head_dim, self.latent_dim], false);
        at.row("o_proj", self.heads * self.v_head_dim, at.hidden, self.bias);
        match self.out_gate {
            Some(OutputGate::PerElement) => {
                at.heads("gate_proj", at.hidden, self.heads * self.v_head_dim, false);
            }
            Some(OutputGate::PerHead(_)) => at.heads("gate_proj", at.hidden, self.heads, false),
            Some(OutputGate::InQueries) | None => {}
        }
    }
}
