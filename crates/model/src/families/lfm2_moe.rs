//! LFM2 with routed experts.
//!
//! Source: mlx-lm `models/lfm2_moe.py`.

use super::lfm2::{blueprint, dims};
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = dims(cfg)?;
    let dense = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let moe = Moe {
        experts: cfg.req("num_experts")?,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: dense.with_width(cfg.req("moe_intermediate_size")?).into(),
        router: Router {
            correction_bias: cfg.or("use_expert_bias", true)?,
            renormalize: cfg.or("norm_topk_prob", true)?,
            scale: cfg.or("routed_scaling_factor", 1.0)?,
            ..Router::SIGMOID_CORRECTED
        },
        shared: None,
        latent: None,
        sum_bias: false,
    };
    let first: usize = cfg.or("num_dense_layers", 0)?;
    let mlp = |layer: usize| if layer < first { dense.into() } else { moe.clone().into() };
    let mlps = (0..dims.layers).map(mlp).collect();
    blueprint(cfg, &dims, mlps, stacked_experts(moe.experts))
}
