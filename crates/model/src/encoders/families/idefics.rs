//! Idefics 3 and SmolVLM: SigLIP over tiles, squares of patches merged, and one projection.
//!
//! Source: transformers `models/idefics3/modeling_idefics3.py`.

use super::names::*;
use super::siglip::{self, Defaults};
use crate::config::{Config, ConfigError};
use crate::encoders::*;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // How pictures become tiles, and which sizes stand for absent ones.
    vision.pass_by(&["max_image_size", "size", "use_base_siglip"]);
    let features = text_width(cfg)?;
    let intermediate = |hidden| Some(if hidden == 1152 { 4304 } else { 4 * hidden });
    let tower = siglip::read(&vision, &Defaults { intermediate, ..Defaults::SIGLIP }, features)?;
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let merged = cfg.or("scale_factor", 2)?;
    Ok(EncoderBlueprint {
        positions: PositionTable::Square { side, sampling: Sampling::Nearest },
        connector: vec![
            ConnectorStep::Merge { side: merged, elements: MergedElements::PatchByPatch },
            ConnectorStep::Linear { name: "modality_projection.proj", width: features, bias: false },
        ],
        ..tower
    })
}
