//! GLM-4.5 and 4.6, Solar Open and dots.llm1: sigmoid routing with a correction bias, perhaps norms on queries and keys.
//!
//! Source: mlx-lm `models/glm4_moe.py`, `models/solar_open.py`, `models/dots1.py`.

use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    // mlx-lm rotates without scaling.
    let rope = Rope { scaling: Scaling::None, ..Rope::read_partial(cfg, dims.head_dim, 1.0)? };
    let normed = cfg.or("use_qk_norm", false)?;
    let norm = normed.then(|| QkNorm::per_head(dims.norm.eps()));
    blueprint(cfg, &dims, rope, norm)
}

pub(super) fn read_dots1(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    blueprint(cfg, &dims, Rope::read(cfg, dims.head_dim)?, Some(QkNorm::per_head(dims.norm.eps())))
}

fn blueprint(
    cfg: &Config,
    dims: &Dims,
    rope: Rope,
    qk_norm: Option<QkNorm>,
) -> Result<Blueprint, ConfigError> {
    cfg.only("topk_method", "noaux_tc")?;
    let attention = Attention {
        qk_norm,
        qkv_bias: cfg.or("attention_bias", false)?,
        ..Attention::new(dims, Position::Rope(rope))
    };
    let dense = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let moe = deepseek_moe(cfg, dense, Router::SIGMOID_CORRECTED)?;
    let rewrites = routed_rewrites(dims.layers, moe.as_ref());
    let layer = |mlp: Mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = dense_then_routed(cfg, dims.layers, dense, moe)?.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites, ..Blueprint::new(dims, layers) })
}
