//! Gemma 3n: MobileNetV5, norms and a projection. Pictures have one size, and as many features as the tower has rows.
//!
//! Source: transformers `models/gemma3n/modeling_gemma3n.py`.

use super::mobilenet_v5;
use super::names::*;
use super::siglip::drop;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // What a classifier would have, and the text model's tokens that stand for kinds of pictures.
    vision.pass_by(&[
        "num_classes",
        "num_labels",
        "label_names",
        "do_pooling",
        "pretrained_cfg",
        "vocab_offset",
    ]);
    let tower = mobilenet_v5::read(&vision)?;
    let (hidden, features): (usize, usize) = (vision.or("hidden_size", 2048)?, text_width(cfg)?);
    let tokens: usize = cfg.or("vision_soft_tokens_per_image", 256)?;
    if tokens != tower.fusion.side * tower.fusion.side {
        let rule = format!(
            "`vision_soft_tokens_per_image` ({tokens}) is the square of {} rows on a side",
            tower.fusion.side
        );
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let eps = vision.or("rms_norm_eps", 1e-6)?;
    let patches = PatchEmbedding::new(tower.pixels(), false);
    let scale = ConnectorStep::Scale((hidden as f32).sqrt());
    let rewrites = [
        towers([("vision_tower.timm_model", "encoder"), ("embed_vision", "encoder.connector")]),
        // Of tokens, which the text model embeds.
        ["embedding", "hard_embedding_norm", "embedding_post_projection_norm"]
            .map(|name| drop(&format!("encoder.connector.{name}.*")))
            .into(),
    ];
    Ok(EncoderBlueprint {
        convolutions: Some(tower),
        connector: [vec![scale, soft_norm(eps)], projected(eps, features)].concat(),
        ..EncoderBlueprint::new(hidden, patches, Vec::new(), features, rewrites.concat())
    })
}

/// Of an encoder's rows, before they are projected.
pub(super) fn soft_norm(eps: f32) -> ConnectorStep {
    ConnectorStep::Norm { name: "soft_embedding_norm", norm: Norm::Rms { eps } }
}

/// From rows that are normed to features.
pub(super) fn projected(eps: f32, features: usize) -> Vec<ConnectorStep> {
    vec![
        ConnectorStep::Linear { name: "embedding_projection", width: features, bias: false },
        ConnectorStep::Norm { name: "embedding_post_projection_norm", norm: Norm::RmsUnweighted { eps } },
    ]
}
