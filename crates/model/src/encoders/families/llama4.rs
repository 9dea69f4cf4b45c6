//! Llama 4: a tower with a class token at the end and 2-D rotation over tiles, squares of patches merged, two linear
//! layers, and a projection.
//!
//! Source: transformers `models/llama4/modeling_llama4.py`.

use super::names::*;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::{Activation, RotaryPairing};

/// Of all norms, whatever the config says.
const NORM: Norm = Norm::Layer { eps: 1e-5, bias: true };

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    vision.pass_by(&["norm_eps", "projector_dropout", "attention_dropout", "vision_output_dim"]);
    vision.only("vision_feature_layer", -1)?;
    vision.only("vision_feature_select_strategy", "default")?;
    vision.only("multi_modal_projector_bias", false)?;
    let hidden = vision.req("hidden_size")?;
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let section = vision.section("rope_parameters")?;
    let newer = section.map(|section| section.opt("rope_theta")).transpose()?.flatten();
    let base = vision.opt("rope_theta")?.or(newer).unwrap_or(10_000.0);
    let pairs = PatchPairs::OfHead(RotaryPairing::Interleaved);
    let rotary = Some(Rotary2d { base, axes: RotaryAxes::ColumnsFirstFromOne, pairs });
    let heads = vision.req("num_attention_heads")?;
    let layer = EncoderLayer {
        norm: NORM,
        after: None,
        attention: EncoderAttention { rotary, ..EncoderAttention::new(heads) },
        mlp: PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into(),
        scales: LayerScale::None,
    };
    let patches = PatchEmbedding::new(side(&vision, "patch_size", 14)?, false);
    let patches = PatchEmbedding { channels: vision.or("num_channels", 3)?, ..patches };
    let on_a_side = side(&vision, "image_size", 336)?.checked_div(patches.size).unwrap_or(0);
    let layers = layers(vision.req("num_hidden_layers")?, &layer);
    let merged = (1.0 / vision.or("pixel_shuffle_ratio", 0.5f32)?).round() as usize;
    let linear = |name, width| ConnectorStep::Linear { name, width, bias: false };
    let features = text_width(cfg)?;
    Ok(EncoderBlueprint {
        class_token: ClassToken::Last,
        positions: PositionTable::PerRow { count: on_a_side * on_a_side + 1 },
        input_norm: Some(NORM),
        output_norm: Some(NORM),
        connector: vec![
            ConnectorStep::Merge { side: merged, elements: MergedElements::PatchByPatch },
            linear("fc1", vision.req("projector_input_dim")?),
            ConnectorStep::Act(act),
            linear("fc2", vision.req("projector_output_dim")?),
            ConnectorStep::Act(act),
            linear("linear_1", features),
        ],
        ..EncoderBlueprint::new(hidden, patches, layers, features, rewrites())
    })
}

fn rewrites() -> Vec<WeightRewrite> {
    [
        towers([("vision_model", "encoder"), ("multi_modal_projector", "encoder.connector")]),
        modules([
            ("patch_embedding.linear", "patch_embed"),
            ("layernorm_pre", "input_norm"),
            ("layernorm_post", "output_norm"),
            ("vision_adapter.mlp.fc1", "connector.fc1"),
            ("vision_adapter.mlp.fc2", "connector.fc2"),
        ]),
        vec![
            rename("encoder.class_embedding", "encoder.class_token"),
            rename("encoder.positional_embedding_vlm", "encoder.positions.weight"),
        ],
        parts_of_layers(
            "model.layers",
            [
                ("input_layernorm", "norm1"),
                ("post_attention_layernorm", "norm2"),
                ("self_attn.q_proj", "attn.q_proj"),
                ("self_attn.k_proj", "attn.k_proj"),
                ("self_attn.v_proj", "attn.v_proj"),
                ("self_attn.o_proj", "attn.o_proj"),
                ("mlp.fc1", "mlp.up_proj"),
                ("mlp.fc2", "mlp.down_proj"),
            ],
        ),
    ]
    .concat()
}
