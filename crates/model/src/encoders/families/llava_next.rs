//! LLaVA-NeXT and LLaVA-OneVision: LLaVA over the whole picture and over tiles of it, with a learned vector behind each row.
//!
//! Source: transformers `models/llava_next/modeling_llava_next.py`, `models/llava_onevision/modeling_llava_onevision.py`.

use super::llava;
use super::names::*;
use crate::config::{Config, ConfigError};
use crate::encoders::*;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    with_newline(cfg, llava::read(cfg)?)
}

/// LLaVA-OneVision, whose tower keeps all of its layers.
pub(super) fn read_one_vision(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    with_newline(cfg, llava::read_from_layer(cfg, -1)?)
}

fn with_newline(cfg: &Config, tower: EncoderBlueprint) -> Result<EncoderBlueprint, ConfigError> {
    let newline = ["image_newline", "model.image_newline"].map(|name| rename(name, "encoder.newline"));
    let rewrites = [tower.rewrites.clone(), newline.into()].concat();
    let separators = match cfg.or("use_image_newline_parameter", true)? {
        true => Separators::Newline,
        false => Separators::None,
    };
    Ok(EncoderBlueprint { separators, rewrites, ..tower })
}
