//! Text models of Qwen2-VL, 2.5-VL and 3-VL: Qwen2 and Qwen3 under other names.
//!
//! Source: mlx-lm `models/qwen2_vl.py`, `models/qwen3_vl.py`, `models/qwen3_vl_moe.py`.

use super::names::*;
use super::parts::*;
use super::{qwen2, qwen3};
use crate::*;

pub(super) fn read_qwen2(cfg: &Config) -> Result<Blueprint, ConfigError> {
    within(cfg, qwen2::read)
}

pub(super) fn read_qwen3(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let blueprint = within(cfg, qwen3::read)?;
    let width = blueprint.layers.iter().find_map(|layer| match &layer.mlp {
        Some(Mlp::Moe(moe)) => Some(moe.expert.width()),
        _ => None,
    });
    let experts = width.map(turned_experts).unwrap_or_default();
    Ok(Blueprint { rewrites: [blueprint.rewrites, experts].concat(), ..blueprint })
}

fn within(cfg: &Config, read: Read) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?;
    let blueprint = read(text.as_ref().unwrap_or(cfg))?;
    let rewrites = [text_model(), blueprint.rewrites].concat();
    Ok(Blueprint { rewrites, ..blueprint })
}
