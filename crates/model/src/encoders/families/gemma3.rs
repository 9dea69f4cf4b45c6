//! Gemma 3: SigLIP at one size, squares of its patches averaged, a norm and a projection.
//!
//! Source: transformers `models/gemma3/modeling_gemma3.py`.

use super::names::*;
use super::siglip::{self, Defaults};
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::norm::Norm;
use crate::rewrite::{WeightRewrite, When};

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    let features = text_width(cfg)?;
    let tower = siglip::read(&vision, &Defaults::SIGLIP, features)?;
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let tokens: usize = cfg.or("mm_tokens_per_image", 256)?;
    let tokens_side = tokens.isqrt();
    if tokens_side * tokens_side != tokens || tokens == 0 || !side.is_multiple_of(tokens_side) {
        let rule = format!("`mm_tokens_per_image` ({tokens}) is a square whose side divides {side} patches");
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let norm = Norm::Rms { eps: vision.or("layer_norm_eps", 1e-6)? };
    let own = vec![
        rename("encoder.connector.mm_soft_emb_norm.weight", "encoder.connector.norm.weight"),
        rename("encoder.connector.mm_input_projection_weight", "encoder.connector.projection.weight"),
        WeightRewrite::Transposed { tensors: "encoder.connector.projection.weight".into() },
        WeightRewrite::Add {
            tensors: "encoder.connector.norm.weight".into(),
            amount: 1.0,
            when: When::Always,
        },
    ];
    Ok(EncoderBlueprint {
        positions: PositionTable::PerRow { count: side * side },
        connector: vec![
            ConnectorStep::Pool { side: side / tokens_side },
            ConnectorStep::Norm { name: "norm", norm },
            ConnectorStep::Linear { name: "projection", width: features, bias: false },
        ],
        rewrites: [tower.rewrites.clone(), own].concat(),
        ..tower
    })
}
