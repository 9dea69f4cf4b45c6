//! Aya Vision: SigLIP over tiles, squares of patches merged, a norm and a gated pair of linear layers.
//!
//! Source: transformers `models/aya_vision/modeling_aya_vision.py`.

use super::names::*;
use super::siglip::{self, Defaults, drop};
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    cfg.only("vision_feature_select_strategy", "full")?;
    let vision = vision(cfg)?;
    let features = text_width(cfg)?;
    let mut tower = siglip::read(&vision, &Defaults::SIGLIP, features)?;
    let layer = TakenFrom(cfg.or("vision_feature_layer", -1f32)? as i64);
    tower.layers.truncate(layer.layers(tower.layers.len())?);
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let norm = Norm::Layer { eps: cfg.or("adapter_layer_norm_eps", 1e-6)?, bias: true };
    let width = cfg.or("alignment_intermediate_size", features)?;
    Ok(EncoderBlueprint {
        positions: PositionTable::PerRow { count: side * side },
        output_norm: None,
        connector: vec![
            ConnectorStep::Merge {
                side: cfg.or("downsample_factor", 2)?,
                elements: MergedElements::PatchByPatch,
            },
            ConnectorStep::Norm { name: "layernorm", norm },
            ConnectorStep::Linear { name: "linear_1", width, bias: true },
            ConnectorStep::GateHalf(Activation::Silu),
            ConnectorStep::Linear { name: "linear_2", width: features, bias: true },
        ],
        rewrites: [tower.rewrites.clone(), vec![drop("encoder.output_norm.*")]].concat(),
        ..tower
    })
}
