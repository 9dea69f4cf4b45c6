//! Qwen2 with routed experts and a gated one that computes every token.
//!
//! Source: mlx-lm `models/qwen2_moe.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    no_sliding_window(cfg)?;
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let attention = Attention { qkv_bias: true, ..Attention::new(&dims, rope(cfg, &dims)?) };
    let width = cfg.req("shared_expert_intermediate_size")?;
    let shared = SharedExpert { name: "shared_expert", width, gate: SharedGate::Sigmoid, act: None };
    // mlx-lm takes the probabilities as they are.
    let plain = |mlp| match mlp {
        Mlp::Moe(moe) => Mlp::Moe(Moe { router: Router::SOFTMAX, ..moe }),
        dense => dense,
    };
    let mlps = qwen_mlps(cfg, dims.layers, Some(shared))?.into_iter().map(plain);
    let layers = mlps.map(|mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm)).collect();
    let rewrites = stacked_experts(cfg.req("num_experts")?);
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}
