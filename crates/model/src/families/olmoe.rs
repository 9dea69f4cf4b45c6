//! OLMoE: OLMo's norms over whole queries and keys, routed experts in every layer.
//!
//! Source: mlx-lm `models/olmoe.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("clip_qkv", serde_json::Value::Null)?;
    let dims = Dims::read(cfg)?;
    let attention = Attention {
        qk_norm: Some(QkNorm::full_width(dims.norm.eps())),
        ..Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?)
    };
    let renormalize = cfg.or("norm_topk_prob", false)?;
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.req("num_experts")?,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?).into(),
        router: Router { renormalize, ..Router::SOFTMAX },
        shared: None,
    };
    let rewrites = stacked_experts(moe.experts);
    Ok(Blueprint { rewrites, ..Blueprint::uniform(&dims, LayerSpec::pre_norm(attention, moe, dims.norm)) })
}
