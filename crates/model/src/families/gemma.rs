//! Gemma and Gemma 2: norms stored as `weight − 1`, embeddings scaled by √hidden; the second caps scores and logits, and has
//! windows in every other layer.
//!
//! Source: mlx-lm `models/gemma.py`, `models/gemma2.py`, which has no windows; transformers `models/gemma2`.

use std::num::NonZeroUsize;

use super::by_layer::by_kind_or_every;
use super::parts::*;
use crate::*;

/// Configs that name no activation are of the first release, which mlx-lm computes with the exact one.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let act = cfg.choice_opt("hidden_activation", ACTIVATIONS)?;
    read_with(cfg, act.unwrap_or(Activation::Gelu))
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
    Ok(blueprint(&dims, vec![layer; dims.layers]))
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
    let layer = |span: AttentionSpan| {
        let attention = Attention { span, ..attention.clone() };
        LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::GEMMA)
    };
    let full = layer(AttentionSpan::Full);
    let layers = match cfg.opt::<NonZeroUsize>("sliding_window")? {
        Some(window) => {
            let sliding = layer(AttentionSpan::Window(window.get()));
            by_kind_or_every(cfg, 2, dims.layers, [full, sliding])?
        }
        None => vec![full; dims.layers],
    };
    let logit_softcap = Some(cfg.or("final_logit_softcapping", 30.0)?);
    Ok(Blueprint { logit_softcap, ..blueprint(&dims, layers) })
}

fn blueprint(dims: &Dims, layers: Vec<LayerSpec>) -> Blueprint {
    Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        rewrites: add_one_to_norms(When::Always).collect(),
        ..Blueprint::new(dims, layers)
    }
}
