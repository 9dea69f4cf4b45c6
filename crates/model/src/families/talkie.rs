//! Talkie: norms without weights, and learned numbers instead: for each part, each head, and the embeddings, which join
//! behind every layer.
//!
//! Source: mlx-lm `models/talkie.py`.

use super::names::*;
use crate::*;

/// Of every norm, where the config does not say.
const EPS: f32 = f32::EPSILON;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let norm = Norm::RmsUnweighted { eps: cfg.or("rms_norm_eps", EPS)? };
    let dims = Dims { norm, head: Head::Own, ..Dims::read(cfg)? };
    let rope = Rope::new(dims.head_dim, cfg.or("rope_theta", 1_000_000.0)?);
    let attention = Attention {
        qk_norm: Some(QkNorm { norm, over: NormOver::Head, at: NormAt::AfterRotation }),
        query_gain: true,
        ..Attention::new(&dims, Position::Rope(rope))
    };
    let mlp = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let layer = LayerSpec {
        norms_after: Some([Norm::Gain; 2]),
        finish: vec![Finish::AddEmbeddings],
        ..LayerSpec::pre_norm(attention, mlp, norm).with_norms(NormPlacement::Sandwich {
            mixer: ["input_norm", "attn_gain"],
            mlp: ["mlp_norm", "mlp_gain"],
        })
    };
    // The rotation turns the other way, which is the same of heads with their halves exchanged.
    let exchanged = ["q_proj", "k_proj"]
        .map(|name| halves_exchanged(&format!("model.layers.*.self_attn.{name}"), dims.heads, dims.head_dim));
    let rewrites = [
        modules([("model.embed", "model.embed_tokens")]),
        vec![
            prefix("model.blocks", "model.layers"),
            WeightRewrite::Rename { from: "lm_head".into(), to: "lm_head.weight".into() },
            WeightRewrite::MoveFactors { from: "lm_head_gain.w_g".into(), to: "lm_head.weight".into() },
            drop("lm_head_gain.w_g"),
        ],
        parts_of_layers([
            ("attn.attn_query", "self_attn.q_proj"),
            ("attn.attn_key", "self_attn.k_proj"),
            ("attn.attn_value", "self_attn.v_proj"),
            ("attn.attn_resid", "self_attn.o_proj"),
            ("mlp.mlp_gate", "mlp.gate_proj"),
            ("mlp.mlp_linear", "mlp.up_proj"),
            ("mlp.mlp_resid", "mlp.down_proj"),
        ]),
        tensors_of_layers([
            ("attn.head_gain.head_g", "self_attn.head_gain"),
            ("attn_gain.a_g", "attn_gain.weight"),
            ("mlp_gain.a_g", "mlp_gain.weight"),
            ("embed_skip.a_g", "embed_skip.weight"),
        ]),
        exchanged.to_vec(),
    ];
    Ok(Blueprint { embed_norm: Some(norm), rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
