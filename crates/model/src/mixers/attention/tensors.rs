//! Names and shapes of an attention layer's tensors.

use super::{Attention, KeySource, OutNorm, OutputGate};
use crate::manifest::{Scope, TensorRole};
use crate::spec::Tensors;

/// The norm before the output projection.
pub(super) const OUT_NORM: &str = "attn_sub_norm";

impl Tensors for Attention {
    fn name_tensors(&self, at: &mut Scope) {
        let (q, k) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (v, out) = (self.kv_heads * self.v_head_dim, self.heads * self.v_head_dim);
        let inputs = self.inputs.unwrap_or(at.hidden);
        let gated = if self.out_gate == Some(OutputGate::InQueries) { 2 * q } else { q };
        at.heads("q_proj", inputs, gated, self.qkv_bias);
        match self.keys {
            KeySource::Own => {
                at.heads("k_proj", inputs, k, self.qkv_bias);
                at.heads("v_proj", inputs, v, self.qkv_bias);
            }
            KeySource::OwnAsValues => at.heads("k_proj", inputs, k, self.qkv_bias),
            KeySource::Layer(_) => {}
        }
        at.row("o_proj", out, at.hidden, self.out_bias);
        match self.out_gate {
            Some(OutputGate::PerElement) => at.heads("gate_proj", inputs, out, false),
            Some(OutputGate::PerHead(_)) => at.heads("gate_proj", inputs, self.heads, false),
            Some(OutputGate::InQueries) | None => {}
        }
        if let Some(OutNorm::AllHeads(norm)) = self.out_norm {
            at.norm_as(TensorRole::Heads, OUT_NORM, norm, out);
        }
        if let Some(distances) = self.distances {
            distances.name_tensors(self.heads, at);
        }
        if self.query_gain {
            at.tensor("head_gain", &[self.heads], TensorRole::Heads);
        }
        if self.sink_logits {
            at.tensor("sinks", &[self.heads], TensorRole::Heads);
        }
        if self.rounds_keys && self.has_keys() {
            at.tensor("quant_key_scale", &[], TensorRole::Replicated);
            at.tensor("quant_value_scale", &[], TensorRole::Replicated);
        }
        if let Some(norm) = self.qk_norm {
            let kv_heads = if self.has_keys() { Some(self.kv_heads) } else { None };
            norm.name_tensors([Some(self.heads), kv_heads], self.head_dim, at);
        }
    }
}
