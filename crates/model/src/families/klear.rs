//! Klear: sigmoid routing, and learned weights for routed and shared experts.
//!
//! Source: mlx-lm `models/Klear.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let attention = Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?)
    };
    let width = cfg.req::<usize>("moe_intermediate_size")? * cfg.req::<usize>("n_shared_experts")?;
    let shared = SharedExpert { name: "shared_experts", width, gate: SharedGate::Mix, act: None };
    let renormalize = cfg.or("norm_topk_prob", false)?;
    let sigmoid = |mlp| match mlp {
        Mlp::Moe(moe) => Mlp::Moe(Moe { router: Router { renormalize, ..Router::SIGMOID_CORRECTED }, ..moe }),
        dense => dense,
    };
    let mlps: Vec<Mlp> = qwen_mlps(cfg, dims.layers, Some(shared))?.into_iter().map(sigmoid).collect();
    let rewrites = [
        stacked_experts(cfg.req("num_experts")?),
        tensors_of_layers([("mlp.expert_bias", "mlp.gate.e_score_correction_bias")]),
    ];
    let layer = |mlp: Mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = mlps.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}
