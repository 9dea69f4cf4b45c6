//! Trinity (AFMoE): gated attention, windows with a rotation and full layers without one, norms on both sides.
//!
//! Source: mlx-lm `models/afmoe.py`.

use super::names::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let local = Attention {
        span: AttentionSpan::Window(cfg.or("sliding_window", 2048)?),
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        out_gate: Some(OutputGate::PerElement),
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    let global = Attention { span: AttentionSpan::Full, position: Position::None, ..local.clone() };
    let dense = GatedMlp::read(cfg)?;
    let moe = moe(cfg, dense)?;
    let norms = NormPlacement::Sandwich {
        mixer: ["input_layernorm", "post_attention_layernorm"],
        mlp: ["pre_mlp_layernorm", "post_mlp_layernorm"],
    };
    let first: usize = cfg.or("num_dense_layers", 2)?;
    let spans = super::by_layer::layer_spans(cfg, dims.layers)?;
    let layer = |(at, span): (usize, AttentionSpan)| {
        let attention = if span == AttentionSpan::Full { &global } else { &local };
        let mlp: Mlp = if at < first { dense.into() } else { moe.clone().into() };
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm).with_norms(norms)
    };
    let scaled = cfg.or("mup_enabled", true)?;
    let rewrites = [
        vec![drop("**.rotary_emb.inv_freq")],
        stacked_experts(moe.experts),
        parts_of_layers([("mlp.router.gate", "mlp.gate")]),
        tensors_of_layers([("mlp.expert_bias", "mlp.gate.e_score_correction_bias")]),
    ];
    Ok(Blueprint {
        embed_scale: if scaled { (dims.hidden as f32).sqrt() } else { 1.0 },
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, spans.into_iter().enumerate().map(layer).collect())
    })
}

fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let (experts, width): (usize, usize) = (cfg.req("num_experts")?, cfg.req("moe_intermediate_size")?);
    let shared = width * cfg.or::<usize>("num_shared_experts", 1)?;
    let kinds = [("softmax", RouteScores::Softmax), ("sigmoid", RouteScores::Sigmoid)];
    let top_k = cfg.or("num_experts_per_tok", 8)?;
    Ok(Moe {
        latent: None,
        sum_bias: false,
        experts,
        top_k,
        expert: dense.with_width(width).into(),
        router: Router {
            scores: cfg.choice_opt("score_func", &kinds)?.unwrap_or(RouteScores::Sigmoid),
            groups: groups(cfg, experts)?,
            renormalize: top_k > 1 && cfg.or("route_norm", true)?,
            scale: cfg.or("route_scale", 2.826)?,
            ..Router::SIGMOID_CORRECTED
        },
        shared: (shared > 0).then(|| shared_experts(shared)),
    })
}
