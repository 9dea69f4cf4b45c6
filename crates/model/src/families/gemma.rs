//! Gemma and Gemma 2: norms stored as `weight − 1`, embeddings scaled by √hidden; the second caps scores and logits.
//!
//! Source: mlx-lm `models/gemma.py`, `models/gemma2.py`.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    read_with(cfg, Activation::Gelu)
}

/// Gemma as the text model of PaliGemma, with the activation that it was trained with.
pub(super) fn read_below_encoder(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let act = cfg.choice_opt("hidden_activation", ACTIVATIONS)?;
    read_with(cfg, act.unwrap_or(Activation::GeluTanh))
}

fn read_with(cfg: &Config, act: Activation) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    let dims = Dims { head: Head::Tied, ..Dims::read(cfg)? };
    let mlp = GatedMlp { width: cfg.req("intermediate_size")?, act, bias: false };
    let layer = LayerSpec::pre_norm(Attention::new(&dims, rope(cfg, &dims)?), mlp, dims.norm);
    Ok(blueprint(&dims, layer))
}

pub(super) fn read_gemma2(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", false)?;
    let dims = Dims { head: Head::Tied, ..Dims::read(cfg)? };
    let mlp = GatedMlp { width: cfg.req("intermediate_size")?, act: Activation::GeluTanh, bias: false };
    let attention = Attention {
        scale: cfg.or::<f32>("query_pre_attn_scalar", 144.0)?.powf(-0.5),
        softcap: Some(cfg.or("attn_logit_softcapping", 50.0)?),
        ..Attention::new(&dims, rope(cfg, &dims)?)
    };
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::GEMMA);
    let logit_softcap = Some(cfg.or("final_logit_softcapping", 30.0)?);
    Ok(Blueprint { logit_softcap, ..blueprint(&dims, layer) })
}

fn blueprint(dims: &Dims, layer: LayerSpec) -> Blueprint {
    Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        rewrites: add_one_to_norms(When::Always).collect(),
        ..Blueprint::uniform(dims, layer)
    }
}
