//! Muse Glimmer: gated attention with norms without weights, windows that rotate and full layers that do not.
//!
//! Source: mlx-lm `models/muse_glimmer.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let norm = Norm::RmsUnweighted { eps: dims.norm.eps() };
    let local = Attention {
        scale: (dims.head_dim as f32).powf(-0.5) * cfg.or::<f32>("qk_scale_factor", 1.0)?,
        span: AttentionSpan::Window(cfg.req("sliding_window")?),
        qk_norm: Some(QkNorm { norm, over: NormOver::Head, at: NormAt::BeforeRotation }),
        out_gate: Some(OutputGate::PerElement),
        ..Attention::new(&dims, rope(cfg, &dims)?)
    };
    let global = Attention { span: AttentionSpan::Full, position: Position::None, ..local.clone() };
    let mlp = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let after = Norm::Rms { eps: cfg.or("post_norm_eps", dims.norm.eps())? };
    let layer = |attention: &Attention| LayerSpec {
        norms_after: Some([after; 2]),
        ..LayerSpec::pre_norm(attention.clone(), mlp, dims.norm).with_norms(NormPlacement::GEMMA)
    };
    let layers = by_kind_or_every(cfg, 4, dims.layers, [layer(&global), layer(&local)])?;
    let centered =
        WeightRewrite::Add { tensors: "model.layers.*.*.weight".into(), amount: 1.0, when: When::Always };
    Ok(Blueprint {
        embed_norm: Some(norm),
        logit_scale: cfg.or("output_multiplier", 1.0)?,
        logit_softcap: Some(cfg.or("final_logit_softcapping", 20.0)?),
        rewrites: [text_model(), vec![centered]].concat(),
        ..Blueprint::new(&dims, layers)
    })
}
