//! Ernie 4.5 with routed experts: neighbours rotate together, experts in a range of layers.
//!
//! Source: mlx-lm `models/ernie4_5_moe.py`, which chooses experts without the published correction bias.

use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let bias = cfg.or("use_bias", false)?;
    let attention = Attention::new(&dims, interleaved_rope(cfg, &dims)?).with_bias(bias);
    let dense = GatedMlp::read(cfg)?.with_bias(bias);
    let width = cfg.opt::<usize>("moe_intermediate_size")?.filter(|width| *width > 0).unwrap_or(dense.width);
    let shared = width * cfg.or::<usize>("moe_num_shared_experts", 0)?;
    let kinds = [("softmax", RouteScores::Softmax), ("sigmoid", RouteScores::Sigmoid)];
    let scores = cfg.choice_opt("moe_gate_act", &kinds)?.unwrap_or(RouteScores::Softmax);
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.req("moe_num_experts")?,
        top_k: cfg.or("moe_k", 1)?,
        expert: dense.with_width(width).into(),
        router: Router { scores, ..Router::SOFTMAX_RENORMALIZED },
        shared: (shared > 0).then(|| shared_experts(shared)),
    };
    let (first, interval): (usize, usize) =
        (cfg.or("moe_layer_start_index", 0)?, cfg.or("moe_layer_interval", 1)?);
    let last: usize = cfg.or("moe_layer_end_index", dims.layers.saturating_sub(1))?;
    let layer = |at: usize| {
        let is_routed = (first..=last).contains(&at) && (at + 1).is_multiple_of(interval);
        let mlp: Mlp = if is_routed { moe.clone().into() } else { dense.into() };
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm)
    };
    let dropped = [
        "**.e_score_correction_bias",
        "**.mtp_block.**",
        "**.mtp_linear_proj.**",
        "**.mtp_hidden_norm.**",
        "**.mtp_emb_norm.**",
    ]
    .map(drop);
    Ok(Blueprint {
        rewrites: [dropped.into(), stacked_experts(moe.experts)].concat(),
        ..Blueprint::new(&dims, (0..dims.layers).map(layer).collect())
    })
}
