//! Gemma 3, text only: five local layers to each global one, norms on both sides of everything.
//!
//! Source: mlx-lm `models/gemma3_text.py`; absent fields mean what they mean there.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    cfg.only("use_bidirectional_attention", false)?;
    for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
        cfg.only(cap, serde_json::Value::Null)?;
    }
    let dims = Dims { head: Head::OwnIfPresent, ..Dims::read(cfg)? };
    let act = cfg.choice_opt("hidden_activation", Activation::CHOICES)?.unwrap_or(Activation::GeluTanh);
    let mlp = GatedMlp { act, ..GatedMlp::read(cfg)? };
    let global = Attention {
        scale: cfg.or::<f32>("query_pre_attn_scalar", 256.0)?.powf(-0.5),
        qk_norm: Some(QkNorm::PerHead { eps: dims.norm.eps() }),
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    let local = Attention {
        span: AttentionSpan::Window(cfg.or("sliding_window", 512)?),
        position: Position::Rope(Rope::new(dims.head_dim, cfg.or("rope_local_base_freq", 10_000.0)?)),
        ..global.clone()
    };
    let period: usize = cfg.or("sliding_window_pattern", 6)?;
    let layer = |index: usize| {
        let attention = if (index + 1).is_multiple_of(period) { &global } else { &local };
        let mixer = Mixer::Attention(attention.clone());
        LayerSpec {
            norm_placement: NormPlacement::GEMMA,
            ..LayerSpec::pre_norm(mixer, Mlp::Gated(mlp), dims.norm)
        }
    };
    Ok(Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        rewrites: add_one_to_norms(None).collect(),
        ..Blueprint::new(&dims, (0..dims.layers).map(layer).collect())
    })
}
