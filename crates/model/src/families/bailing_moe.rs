//! Ling and Ring (Bailing MoE), 1 and 2: one projection for queries, keys and values, experts routed by softmax or sigmoid.
//!
//! Source: mlx-lm `models/bailing_moe.py`.

use super::bailing::*;
use super::names::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = attention(cfg, &dims)?;
    let dense = GatedMlp::read(cfg)?.with_bias(cfg.or("use_bias", false)?);
    let moe = moe(cfg, dense)?;
    let split = vec![split_qkv("model.layers.*.self_attn.query_key_value", &attention)];
    let rewrites = [head_norm(cfg)?, names(&dims, &moe), split].concat();
    let layer = |mlp: Mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = dense_then_routed(cfg, dims.layers, dense, Some(moe))?.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}

/// Attention with a joined projection.
pub(super) fn attention(cfg: &Config, dims: &Dims) -> Result<Attention, ConfigError> {
    let normed = cfg.or("use_qk_norm", false)?;
    let rope = match cfg.opt("rotary_dim")? {
        Some(rotated) => Rope::read(cfg, rotated)?,
        None => Rope::read_partial(cfg, dims.head_dim, 1.0)?,
    };
    Ok(Attention {
        qk_norm: normed.then(|| QkNorm::per_head(dims.norm.eps())),
        qkv_bias: cfg.or("use_qkv_bias", false)?,
        out_bias: cfg.or("use_bias", false)?,
        ..Attention::new(dims, Position::Rope(rope))
    })
}
