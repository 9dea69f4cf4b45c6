//! Names and shapes of an attention layer's tensors.

use super::{Attention, QkNorm};
use crate::Norm;
use crate::manifest::Scope;
use crate::spec::Tensors;

impl Tensors for Attention {
    fn name_tensors(&self, at: &mut Scope) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let gated = if self.out_gate { 2 * q } else { q };
        at.linear("q_proj", at.hidden, gated, self.qkv_bias);
        at.linear("k_proj", at.hidden, kv, self.qkv_bias);
        at.linear("v_proj", at.hidden, kv, self.qkv_bias);
        at.linear("o_proj", q, at.hidden, self.out_bias);
        let (q_norm, k_norm, eps) = match self.qk_norm {
            Some(QkNorm::PerHead { eps }) => (self.head_dim, self.head_dim, eps),
            Some(QkNorm::FullWidth { eps }) => (q, kv, eps),
            None => return,
        };
        at.norm("q_norm", Norm::Rms { eps }, q_norm);
        at.norm("k_norm", Norm::Rms { eps }, k_norm);
    }
}
