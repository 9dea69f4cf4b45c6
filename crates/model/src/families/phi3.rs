//! Phi-3, 3.5 and 4 (mini and medium): Llama with joined projections and, for long contexts, a long rotation.
//!
//! Source: mlx-lm `models/phi3.py`.

use super::names::*;
use super::parts::*;
use crate::*;

/// Phi-3 Vision, whose encoder stands beside the embeddings.
pub(super) fn read_vision(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let blueprint = read(cfg)?;
    let encoder = vec![drop("model.vision_embed_tokens.**")];
    Ok(Blueprint { rewrites: [encoder, blueprint.rewrites].concat(), ..blueprint })
}

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, partial_rope(cfg, &dims, 1.0)?);
    let mlp = GatedMlp::read(cfg)?;
    let rewrites = vec![
        split_qkv("model.layers.*.self_attn.qkv_proj", &attention),
        split_gate_up("model.layers.*.mlp.gate_up_proj", mlp.width),
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint { rewrites, ..Blueprint::uniform(&dims, layer) })
}
