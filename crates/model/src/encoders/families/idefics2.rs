//! Idefics 2: SigLIP at any aspect ratio, a gated projection, and a perceiver.
//!
//! Source: transformers `models/idefics2/modeling_idefics2.py`.

use super::names::*;
use super::siglip::{self, Defaults};
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::families::with_defaults;
use crate::mlps::ACTIVATIONS;
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let missing = |field: &str| ConfigError::Missing { field: field.to_owned() };
    let vision = vision(cfg)?;
    // The name of the published code's own class, and what training began with.
    vision.pass_by(&["model_type", "attention_dropout", "initializer_range"]);
    let text = with_defaults(cfg.section("text_config")?.ok_or_else(|| missing("text_config"))?)?;
    let features = text_width(cfg)?;
    let intermediate = |hidden| Some(if hidden == 1152 { 4304 } else { 4 * hidden });
    let tower = siglip::read(&vision, &Defaults { intermediate, ..Defaults::SIGLIP }, features)?;
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let act = text.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu);
    let perceiver = cfg.section("perceiver_config")?.ok_or_else(|| missing("perceiver_config"))?;
    let perceiver = read_perceiver(&perceiver, features, text.or("rms_norm_eps", 1e-5)?)?;
    let names = [
        prefix("encoder.connector.modality_projection", "encoder.connector"),
        prefix("encoder.connector.perceiver_resampler", "encoder.connector.perceiver"),
    ];
    let layers = [
        ("input_latents_norm", "latents_norm"),
        ("input_context_norm", "context_norm"),
        ("post_attention_layernorm", "norm"),
        ("self_attn.*", "attn.*"),
    ];
    let layers = layers.map(|(from, to)| {
        let path = "encoder.connector.perceiver.layers.*";
        rename(&format!("{path}.{from}.*"), &format!("{path}.{to}.*"))
    });
    Ok(EncoderBlueprint {
        positions: PositionTable::Square { side, sampling: Sampling::Nearest },
        connector: vec![
            ConnectorStep::Gated { act, width: text.req("intermediate_size")?, bias: false },
            ConnectorStep::Linear { name: "down_proj", width: features, bias: false },
            ConnectorStep::Perceiver(perceiver),
        ],
        rewrites: [tower.rewrites.clone(), names.into(), layers.into()].concat(),
        ..tower
    })
}

/// A config without the text model's width has the text model's epsilon.
fn read_perceiver(cfg: &Config, features: usize, text_eps: f32) -> Result<Perceiver, ConfigError> {
    cfg.pass_by(&["model_type", "attention_dropout", "initializer_range"]);
    let is_own = cfg.or("hidden_size", 4096)? == features;
    let own: f32 = cfg.or("rms_norm_eps", 1e-6)?;
    Ok(Perceiver {
        latents: cfg.or("resampler_n_latents", 64)?,
        layers: cfg.or("resampler_depth", 3)?,
        heads: cfg.or("resampler_n_heads", 16)?,
        kv_heads: cfg.or("num_key_value_heads", 4)?,
        head_dim: cfg.or("resampler_head_dim", 96)?,
        norm: Norm::Rms { eps: if is_own { own } else { text_eps } },
        width: 4 * features,
        act: cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu),
    })
}
