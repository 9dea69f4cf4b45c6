//! Qwen2-VL: patches of two frames in squares of four, 2-D rotation, and a merger of each square. Qwen2.5-VL and Qwen3-VL
//! build on it.
//!
//! Source: transformers `models/qwen2_vl/modeling_qwen2_vl.py`.

use super::names::*;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, Mlp, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::{Activation, RotaryPairing};

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    let hidden: usize = vision.req("embed_dim")?;
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::QuickGelu);
    let width = (hidden as f32 * vision.or("mlp_ratio", 4f32)?) as usize;
    let norm = Norm::Layer { eps: 1e-6, bias: true };
    let mlp = PlainMlp { width, act, bias: true }.into();
    let features = vision.req("hidden_size")?;
    let tower = tower(&vision, hidden, (norm, mlp), features)?;
    let merger = merger(&tower, Norm::Layer { eps: 1e-6, bias: true });
    Ok(EncoderBlueprint { connector: merger, ..tower })
}

/// By rows and columns.
pub(super) const ROTARY: Rotary2d = Rotary2d {
    base: 10_000.0,
    axes: RotaryAxes::SameFrequencies,
    pairs: PatchPairs::OfHead(RotaryPairing::Halves),
};

/// A tower without a connector, whose patches have no bias.
pub(super) fn tower(
    vision: &Config,
    hidden: usize,
    (norm, mlp): (Norm, Mlp),
    features: usize,
) -> Result<EncoderBlueprint, ConfigError> {
    let size = vision.or("patch_size", 14)?;
    vision.only("spatial_patch_size", size)?;
    let attention =
        EncoderAttention { rotary: Some(ROTARY), ..EncoderAttention::new(vision.req("num_heads")?) };
    let layer = EncoderLayer { norm, after: None, attention, mlp, scales: LayerScale::None };
    let channels = vision.opt("in_chans")?.or(vision.opt("in_channels")?).unwrap_or(3);
    let frames = vision.or("temporal_patch_size", 2)?;
    let patches = PatchEmbedding { channels, frames, ..PatchEmbedding::new(size, false) };
    let layers = layers(vision.req("depth")?, &layer);
    let order = PatchOrder::Squares(vision.or("spatial_merge_size", 2)?);
    Ok(EncoderBlueprint {
        order,
        ..EncoderBlueprint::new(hidden, patches, layers, features, rewrites(hidden))
    })
}

/// Patches on a side of what is merged.
pub(super) fn merged_side(tower: &EncoderBlueprint) -> usize {
    match tower.order {
        PatchOrder::Squares(side) => side,
        PatchOrder::Rows => 1,
    }
}

/// A norm of patches, then two linear layers over each square.
pub(super) fn merger(tower: &EncoderBlueprint, norm: Norm) -> Vec<ConnectorStep> {
    let side = merged_side(tower);
    vec![
        ConnectorStep::Norm { name: "norm", norm },
        ConnectorStep::Merge { side, elements: MergedElements::PatchByPatch },
        ConnectorStep::Linear { name: "linear_fc1", width: tower.hidden * side * side, bias: true },
        ConnectorStep::Act(Activation::Gelu),
        ConnectorStep::Linear { name: "linear_fc2", width: tower.features, bias: true },
    ]
}

pub(super) fn rewrites(hidden: usize) -> Vec<WeightRewrite> {
    [
        towers([("vision_tower", "encoder"), ("visual", "encoder")]),
        modules([
            ("patch_embed.proj", "patch_embed"),
            ("pos_embed", "positions"),
            ("merger.ln_q", "connector.norm"),
            ("merger.mlp.0", "connector.linear_fc1"),
            ("merger.mlp.2", "connector.linear_fc2"),
            ("merger.*", "connector.*"),
            ("deepstack_merger_list.*.*", "deepstack.*.*"),
        ]),
        parts_of_layers(
            "blocks",
            [
                ("norm1", "norm1"),
                ("norm2", "norm2"),
                ("attn.qkv", "attn.qkv"),
                ("attn.proj", "attn.o_proj"),
                ("mlp.fc1", "mlp.up_proj"),
                ("mlp.fc2", "mlp.down_proj"),
                ("mlp.linear_fc1", "mlp.up_proj"),
                ("mlp.linear_fc2", "mlp.down_proj"),
                ("mlp.gate_proj", "mlp.gate_proj"),
                ("mlp.up_proj", "mlp.up_proj"),
                ("mlp.down_proj", "mlp.down_proj"),
            ],
        ),
        vec![split_qkv("attn.qkv", hidden)],
    ]
    .concat()
}
