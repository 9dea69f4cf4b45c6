//! K-EXAONE: EXAONE 4's windows and full layers without a rotation, with sigmoid routing.
//!
//! Source: mlx-lm `models/exaone_moe.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("scoring_func", "sigmoid")?;
    cfg.only("topk_method", "noaux_tc")?;
    let dims = Dims::read_untied(cfg)?;
    let local = Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, rope(cfg, &dims)?)
    };
    let spans = layer_spans(cfg, dims.layers)?;
    let all_rotate = spans.iter().all(|span| *span == AttentionSpan::Full);
    let dense = GatedMlp::read(cfg)?;
    let router = Router { renormalize: true, scale: 2.5, ..Router::SIGMOID_CORRECTED };
    let moe = counted_moe(cfg, dense, router)?;
    let routed: Vec<bool> = cfg.req("is_moe_layer")?;
    let layer = |(span, is_routed): (AttentionSpan, bool)| {
        let rotates = all_rotate || span != AttentionSpan::Full;
        let position = if rotates { local.position.clone() } else { Position::None };
        let mlp: Mlp = if is_routed { moe.clone().into() } else { dense.into() };
        LayerSpec::pre_norm(Attention { span, position, ..local.clone() }, mlp, dims.norm)
    };
    let rewrites = [
        vec![drop("mtp.**")],
        tensors_of_layers([("mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias")]),
        stacked_experts(moe.experts),
    ];
    Ok(Blueprint {
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, spans.into_iter().zip(routed).map(layer).collect())
    })
}
