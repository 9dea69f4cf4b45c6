//! PaddleOCR-VL: SigLIP with interpolated positions and 2-D rotation over pictures of any shape; squares of patches
//! merged behind a norm, and two linear layers.
//!
//! Source: transformers `models/paddleocr_vl/modeling_paddleocr_vl.py`.

use super::names::*;
use super::siglip::{self, Defaults, drop};
use super::{kimi_vl, qwen2_vl};
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    vision.pass_by(&["temporal_patch_size", "tokens_per_second", "attention_dropout", "pad_token_id"]);
    let features = text_width(cfg)?;
    let mut tower = siglip::read(&vision, &Defaults::SIGLIP, features)?;
    tower.layers.iter_mut().for_each(|layer| layer.attention.rotary = Some(qwen2_vl::ROTARY));
    let on_a_side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let side: usize = vision.or("spatial_merge_size", 2)?;
    let merged = kimi_vl::normed_and_merged(side);
    let width = tower.hidden * side * side;
    let names = [
        towers([
            ("mlp_AR", "encoder.connector"),
            ("visual.projector", "encoder.connector"),
            ("visual.vision_model", "encoder"),
            ("visual", "encoder"),
        ]),
        vec![drop("encoder.embeddings.packing_position_embedding.**")],
        parts_of_layers("layers", siglip::PARTS),
        parts_of_layers("layers", [("self_attn.qkv", "attn.qkv")]),
    ];
    let joined = vec![split_qkv("attn.qkv", tower.hidden)];
    Ok(EncoderBlueprint {
        positions: PositionTable::Square { side: on_a_side, sampling: Sampling::Bilinear },
        connector: [merged, two_linears(width, Activation::Gelu, features, true)].concat(),
        rewrites: [names.concat(), tower.rewrites.clone(), joined].concat(),
        ..tower
    })
}
