//! LLaVA 1.5: CLIP, whose class token and last layer are left out, and two linear layers; or the encoder of Pixtral.
//!
//! Source: transformers `models/llava/modeling_llava.py`.

use super::names::*;
use super::pixtral;
use super::siglip::{self, Defaults, drop};
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    // Pixtral in Hugging Face's layout.
    match vision(cfg)?.opt::<String>("model_type")?.as_deref() {
        Some("pixtral") => pixtral::read(cfg),
        _ => read_from_layer(cfg, -2),
    }
}

/// `layer`: which layer's rows become features, if the config does not say it.
pub(super) fn read_from_layer(cfg: &Config, layer: i64) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    let class_token =
        vision.choice("model_type", &[("clip_vision_model", true), ("siglip_vision_model", false)])?;
    let defaults = if class_token { Defaults::CLIP } else { Defaults::SIGLIP };
    let features = text_width(cfg)?;
    let mut tower = siglip::read(&vision, &defaults, features)?;
    let layer = TakenFrom(cfg.or("vision_feature_layer", layer as f32)? as i64);
    tower.layers.truncate(layer.layers(tower.layers.len())?);
    // With the class token among the features, their number would be another.
    let strategy = if class_token { "default" } else { "full" };
    cfg.only("vision_feature_select_strategy", strategy)?;
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let patches = PatchEmbedding { bias: !class_token, ..tower.patches };
    let bias = cfg.or("multimodal_projector_bias", true)?;
    Ok(EncoderBlueprint {
        patches,
        class_token: if class_token { ClassToken::First } else { ClassToken::Absent },
        positions: PositionTable::PerRow { count: side * side + usize::from(class_token) },
        input_norm: class_token.then_some(Norm::Layer { eps: 1e-5, bias: true }),
        output_norm: None,
        connector: two_linears(features, projector_act(cfg)?, features, bias),
        rewrites: [tower.rewrites.clone(), vec![drop("encoder.output_norm.*")]].concat(),
        ..tower
    })
}
