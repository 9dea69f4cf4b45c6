//! MiniCPM 1 and 2: Llama whose depth, embeddings and logits are scaled.
//!
//! Source: mlx-lm `models/minicpm.py`; arXiv 2404.06395 §4.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, rope_of_theta(cfg, &dims)?);
    let layer = LayerSpec {
        residual: residual(cfg, &dims)?,
        ..LayerSpec::pre_norm(attention, GatedMlp::read(cfg)?, dims.norm)
    };
    let base: usize = cfg.req("dim_model_base")?;
    // mlx-lm leaves the logits of a tied head as they are.
    let logit_scale = if dims.head == Head::Own { base as f32 / dims.hidden as f32 } else { 1.0 };
    Ok(Blueprint { embed_scale: cfg.req("scale_emb")?, logit_scale, ..Blueprint::uniform(&dims, layer) })
}

/// Deep networks add less in each layer.
pub(super) fn residual(cfg: &Config, dims: &Dims) -> Result<Residual, ConfigError> {
    Ok(Residual::Scaled(cfg.req::<f32>("scale_depth")? / (dims.layers as f32).sqrt()))
}

fn rope_of_theta(cfg: &Config, dims: &Dims) -> Result<Position, ConfigError> {
    let given: Option<f32> = cfg.opt("rope_theta")?;
    let Position::Rope(rope) = rope(cfg, dims)? else { return Ok(Position::None) };
    Ok(Position::Rope(Rope { base: given.unwrap_or(1_000_000.0), ..rope }))
}
