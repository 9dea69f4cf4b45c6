//! Qwen3, dense and mixture-of-experts.
//!
//! Source: mlx-lm `models/qwen3.py` and `models/qwen3_moe.py`.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    no_sliding_window(cfg)?;
    let dims = Dims::read(cfg)?;
    let bias = cfg.or("attention_bias", false)?;
    let attention = Attention {
        qkv_bias: bias,
        out_bias: bias,
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    cfg.only("shared_expert_intermediate_size", 0)?;
    let mlps = qwen_mlps(cfg, dims.layers, None)?;
    let rewrites = stack_experts(&mlps).into_iter().collect();
    let layer = |mlp| LayerSpec::pre_norm(Mixer::Attention(attention.clone()), mlp, dims.norm);
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, mlps.into_iter().map(layer).collect()) })
}
