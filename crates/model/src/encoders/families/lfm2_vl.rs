//! LFM2-VL: SigLIP 2 over pictures of any shape, squares of patches merged, two linear layers.
//!
//! Source: transformers `models/lfm2_vl/modeling_lfm2_vl.py`, `models/siglip2/modeling_siglip2.py`.

use super::names::*;
use super::siglip::{self, Defaults};
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    vision.pass_by(&["image_size", "num_positions", "spatial_shapes"]);
    let features = text_width(cfg)?;
    let mut tower = siglip::read(&vision, &Defaults::SIGLIP, features)?;
    let layer = TakenFrom(cfg.or("vision_feature_layer", -1f32)? as i64);
    tower.layers.truncate(layer.layers(tower.layers.len())?);
    let positions: usize = vision.or("num_patches", 256)?;
    let merge = ConnectorStep::Merge {
        side: cfg.or("downsample_factor", 2)?,
        elements: MergedElements::PatchByPatch,
    };
    let norm = ConnectorStep::Norm { name: "layer_norm", norm: Norm::Layer { eps: 1e-5, bias: true } };
    let normed = if cfg.or("projector_use_layernorm", true)? { vec![merge, norm] } else { vec![merge] };
    let width = cfg.or("projector_hidden_size", 2560)?;
    let projector = two_linears(width, projector_act(cfg)?, features, cfg.or("projector_bias", true)?);
    Ok(EncoderBlueprint {
        positions: PositionTable::Square { side: positions.isqrt(), sampling: Sampling::Antialiased },
        connector: [normed, projector].concat(),
        ..tower
    })
}
