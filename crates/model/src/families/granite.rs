//! Granite 3: Llama with a multiplier on embeddings, scores, residuals and logits.
//!
//! Source: mlx-lm `models/granite.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let attention = attention(cfg, &dims, rope(cfg, &dims)?)?;
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let residual = Residual::Scaled(cfg.req("residual_multiplier")?);
    let layer = LayerSpec { residual, ..LayerSpec::pre_norm(attention, mlp, dims.norm) };
    blueprint(cfg, &dims, vec![layer; dims.layers])
}

/// Attention with its multiplier.
pub(super) fn attention(cfg: &Config, dims: &Dims, position: Position) -> Result<Attention, ConfigError> {
    let attention = Attention::new(dims, position).with_bias(cfg.or("attention_bias", false)?);
    Ok(Attention { scale: cfg.req("attention_multiplier")?, ..attention })
}

/// A network with the multipliers outside layers.
pub(super) fn blueprint(cfg: &Config, dims: &Dims, layers: Vec<LayerSpec>) -> Result<Blueprint, ConfigError> {
    Ok(Blueprint {
        embed_scale: cfg.req("embedding_multiplier")?,
        logit_scale: 1.0 / cfg.req::<f32>("logits_scaling")?,
        rewrites: vec![drop("**.rotary_emb.inv_freq")],
        ..Blueprint::new(dims, layers)
    })
}
