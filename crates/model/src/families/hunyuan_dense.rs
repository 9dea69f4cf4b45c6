//! Hunyuan 0.5B to 7B, dense: queries and keys are normalised after they are rotated.
//!
//! Source: mlx-lm `models/hunyuan_v1_dense.py`.

use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention {
        qk_norm: qk_norm(cfg, &dims)?,
        ..Attention::new(&dims, Position::Rope(alpha_rope(cfg, dims.head_dim)?))
    };
    let layer = LayerSpec::pre_norm(attention, GatedMlp::read(cfg)?, dims.norm);
    Ok(Blueprint { rewrites: norm_names(), ..Blueprint::uniform(&dims, layer) })
}

pub(super) fn qk_norm(cfg: &Config, dims: &Dims) -> Result<Option<QkNorm>, ConfigError> {
    let normed = cfg.or("use_qk_norm", true)?;
    Ok(normed.then(|| QkNorm::per_head(dims.norm.eps()).after_rotation()))
}

/// A base stretched by `alpha`, as dynamic NTK scaling does at one length.
pub(super) fn alpha_rope(cfg: &Config, dims: usize) -> Result<Rope, ConfigError> {
    let scaling = cfg.section("rope_scaling")?;
    let alpha = match &scaling {
        Some(scaling) => {
            scaling.pass_by(&[
                "factor",
                "type",
                "beta_fast",
                "beta_slow",
                "mscale",
                "mscale_all_dim",
                "rope_type",
            ]);
            scaling.or("alpha", 1.0)?
        }
        None => 1.0,
    };
    let base: f32 = cfg.or("rope_theta", 10_000.0)?;
    let stretch = f64::from(alpha).powf(dims as f64 / (dims as f64 - 2.0).max(1.0));
    Ok(Rope::new(dims, (f64::from(base) * stretch) as f32))
}

pub(super) fn norm_names() -> Vec<WeightRewrite> {
    super::names::parts_of_layers([
        ("self_attn.query_layernorm", "self_attn.q_norm"),
        ("self_attn.key_layernorm", "self_attn.k_norm"),
    ])
}
