//! PaliGemma: SigLIP at one size and one linear layer.
//!
//! Source: transformers `models/paligemma/modeling_paligemma.py`.

use super::names::*;
use super::siglip::{self, Defaults};
use crate::config::{Config, ConfigError};
use crate::encoders::*;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    vision.pass_by(&["num_image_tokens", "projector_hidden_act"]);
    let features = text_width(cfg)?;
    let tower = siglip::read(&vision, &Defaults::SIGLIP, features)?;
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    Ok(EncoderBlueprint {
        positions: PositionTable::PerRow { count: side * side },
        connector: vec![ConnectorStep::Linear { name: "linear", width: features, bias: true }],
        ..tower
    })
}
