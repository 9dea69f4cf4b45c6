//! Kimi-VL: MoonViT, a tower with learned positions and 2-D rotation over pictures of any shape; squares of patches
//! merged behind a norm, and two linear layers.
//!
//! Source: arXiv 2504.07491 §2.1; Moonshot's `modeling_kimi_vl.py` beside the published weights.

use super::names::*;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::{Activation, RotaryPairing};

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // Other names of the same numbers.
    vision.pass_by(&["depth", "embed_dim", "num_heads", "spatial_merge_size", "temporal_patch_size"]);
    let hidden = vision.req("hidden_size")?;
    let norm = Norm::Layer { eps: 1e-6, bias: true };
    let pairs = PatchPairs::OfHead(RotaryPairing::Interleaved);
    let rotary = Rotary2d { base: 10_000.0, axes: RotaryAxes::InTurn, pairs };
    let heads = vision.req("num_attention_heads")?;
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let layer = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention { rotary: Some(rotary), ..EncoderAttention::new(heads) },
        mlp: PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into(),
        scales: LayerScale::None,
    };
    let patches = PatchEmbedding::new(vision.or("patch_size", 14)?, true);
    let layers = layers(vision.req("num_hidden_layers")?, &layer);
    let on_a_side: usize = vision.or("init_pos_emb_height", 64)?;
    vision.only("init_pos_emb_width", on_a_side)?;
    let merged = side(&vision, "merge_kernel_size", 2)?;
    let (features, width) = (text_width(cfg)?, hidden * merged * merged);
    Ok(EncoderBlueprint {
        positions: PositionTable::Square { side: on_a_side, sampling: Sampling::Bicubic },
        output_norm: Some(norm),
        connector: [normed_and_merged(merged), two_linears(width, Activation::Gelu, features, true)].concat(),
        ..EncoderBlueprint::new(hidden, patches, layers, features, rewrites(hidden, on_a_side))
    })
}

/// A norm of patches, then squares of them as one.
pub(super) fn normed_and_merged(side: usize) -> Vec<ConnectorStep> {
    vec![
        ConnectorStep::Norm { name: "pre_norm", norm: Norm::Layer { eps: 1e-5, bias: true } },
        ConnectorStep::Merge { side, elements: MergedElements::PatchByPatch },
    ]
}

fn rewrites(hidden: usize, on_a_side: usize) -> Vec<WeightRewrite> {
    let table = "encoder.positions.weight";
    let parts = [
        ("norm0", "norm1"),
        ("norm1", "norm2"),
        ("attn.wqkv", "attn.qkv"),
        ("attn.wo", "attn.o_proj"),
        ("wqkv", "attn.qkv"),
        ("wo", "attn.o_proj"),
        ("mlp.fc0", "mlp.up_proj"),
        ("mlp.fc1", "mlp.down_proj"),
    ];
    [
        towers([("vision_tower", "encoder"), ("multi_modal_projector", "encoder.connector")]),
        modules([
            ("patch_embed.proj", "patch_embed"),
            ("final_layernorm", "output_norm"),
            ("encoder.final_layernorm", "output_norm"),
        ]),
        vec![
            rename("encoder.patch_embed.pos_emb.weight", table),
            WeightRewrite::Reshape { tensors: table.into(), shape: vec![on_a_side * on_a_side, hidden] },
        ],
        parts_of_layers("blocks", parts),
        parts_of_layers("encoder.blocks", parts),
        vec![split_qkv("attn.qkv", hidden)],
    ]
    .concat()
}
