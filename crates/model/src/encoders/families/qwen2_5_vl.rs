//! Qwen2.5-VL: Qwen2-VL's tower with RMS norms and gated MLPs, most of whose layers attend within windows.
//!
//! Source: transformers `models/qwen2_5_vl/modeling_qwen2_5_vl.py`.

use super::names::*;
use super::qwen2_vl;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, GatedMlp};
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // Of positions in time, which the prompt has.
    vision.pass_by(&["tokens_per_second"]);
    let hidden = vision.req("hidden_size")?;
    let norm = Norm::Rms { eps: 1e-6 };
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu);
    let mlp = GatedMlp { width: vision.req("intermediate_size")?, act, bias: true }.into();
    let mut tower = qwen2_vl::tower(&vision, hidden, (norm, mlp), vision.req("out_hidden_size")?)?;
    let whole: Vec<usize> = vision.or("fullatt_block_indexes", vec![7, 15, 23, 31])?;
    for (number, layer) in tower.layers.iter_mut().enumerate() {
        layer.attention.windowed = !whole.contains(&number);
    }
    let pixels: usize = vision.or("window_size", 112)?;
    let side = qwen2_vl::merged_side(&tower) * tower.patches.size;
    let window = Some(pixels.checked_div(side).unwrap_or(0));
    Ok(EncoderBlueprint { connector: qwen2_vl::merger(&tower, norm), window, ..tower })
}
