//! nanochat: norms without weights, after the rotation on queries and keys; the rotation turns the other way.
//!
//! Source: mlx-lm `models/nanochat.py`.

use super::names::*;
use super::parts::*;
use crate::*;

/// Of every norm.
const EPS: f32 = 1e-5;
/// Of the logits.
const SOFTCAP: f32 = 15.0;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let norm = Norm::RmsUnweighted { eps: EPS };
    let dims = Dims { norm, head: Head::Own, ..Dims::read(cfg)? };
    let qk_norm = QkNorm { norm, over: NormOver::Head, at: NormAt::AfterRotation };
    let attention = Attention { qk_norm: Some(qk_norm), ..Attention::new(&dims, rope(cfg, &dims)?) };
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act: Activation::Relu2, bias: false };
    let rewrites = [
        modules([("transformer.wte", "model.embed_tokens")]),
        vec![prefix("transformer.h", "model.layers")],
        parts_of_layers([
            ("attn.c_q", "self_attn.q_proj"),
            ("attn.c_k", "self_attn.k_proj"),
            ("attn.c_v", "self_attn.v_proj"),
            ("attn.c_proj", "self_attn.o_proj"),
            ("mlp.c_fc", "mlp.up_proj"),
            ("mlp.c_proj", "mlp.down_proj"),
        ]),
        vec![
            halves_exchanged("model.layers.*.self_attn.q_proj", dims.heads, dims.head_dim),
            halves_exchanged("model.layers.*.self_attn.k_proj", dims.kv_heads, dims.head_dim),
        ],
    ];
    Ok(Blueprint {
        embed_norm: Some(norm),
        logit_softcap: Some(SOFTCAP),
        rewrites: rewrites.concat(),
        ..Blueprint::uniform(&dims, LayerSpec::pre_norm(attention, mlp, norm))
    })
}
