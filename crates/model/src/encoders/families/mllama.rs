//! Llama 3.2 Vision: tiles that attend to each other, local layers and gated global ones, of which several are joined.
//!
//! Source: transformers `models/mllama/modeling_mllama.py`.

use super::names::*;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

/// Rows of a tile are filled up to a multiple of so many.
const ROWS: usize = 8;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    vision.pass_by(&["model_type", "initializer_range", "return_dict"]);
    let features = text_width(cfg)?;
    let hidden: usize = vision.req("hidden_size")?;
    let heads: usize = match vision.opt("attention_heads")? {
        Some(heads) => heads,
        None => vision.or("num_attention_heads", 16)?,
    };
    vision.only("num_attention_heads", heads)?;
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let local = EncoderLayer {
        norm: Norm::Layer { eps: vision.or("norm_eps", 1e-5)?, bias: true },
        after: None,
        attention: EncoderAttention { biases: Linears::No, ..EncoderAttention::new(heads) },
        mlp: PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into(),
        scales: LayerScale::None,
    };
    let global = EncoderLayer { scales: LayerScale::Gates, ..local.clone() };
    let locals: usize = vision.req("num_hidden_layers")?;
    let globals: usize = vision.or("num_global_layers", 8)?;
    let earlier: Vec<usize> = vision.or("intermediate_layers_indices", vec![3, 7, 15, 23, 30])?;
    vision.only("vision_output_dim", hidden * (1 + earlier.len()))?;
    let shapes: Vec<[usize; 2]> = vision.req("supported_aspect_ratios")?;
    let patches = PatchEmbedding::new(side(&vision, "patch_size", 14)?, false);
    let patches = PatchEmbedding { channels: vision.or("num_channels", 3)?, ..patches };
    let patches_on_a_side = side(&vision, "image_size", 448)? / patches.size.max(1);
    let layers = [layers(locals, &local), layers(globals, &global)].concat();
    let tower = EncoderBlueprint::new(hidden, patches, layers, features, rewrites(locals, globals));
    // A published row has the elements of earlier layers next to each other, channel by channel.
    let inputs = (0..hidden * (1 + earlier.len())).map(|input| match input.checked_sub(hidden) {
        None => input,
        Some(behind) => hidden + behind % hidden * earlier.len() + behind / hidden,
    });
    let projection = WeightRewrite::TakeInputs {
        tensors: "encoder.connector.projection.weight".into(),
        inputs: inputs.collect(),
    };
    let norm = Norm::Layer { eps: 1e-5, bias: true };
    Ok(EncoderBlueprint {
        class_token: ClassToken::First,
        positions: PositionTable::PerRow { count: patches_on_a_side * patches_on_a_side + 1 },
        input_norm: Some(norm),
        tiles: Some(Tiles {
            shapes: shapes.len(),
            most: vision.or("max_num_tiles", 4)?,
            multiple: ROWS,
            local_layers: locals,
            norm,
        }),
        joined: [vec![(locals + globals).saturating_sub(1)], earlier].concat(),
        connector: vec![ConnectorStep::Linear { name: "projection", width: features, bias: true }],
        rewrites: [tower.rewrites.clone(), vec![projection]].concat(),
        ..tower
    })
}

fn rewrites(locals: usize, globals: usize) -> Vec<WeightRewrite> {
    let parts = [
        ("input_layernorm.*", "norm1.*"),
        ("post_attention_layernorm.*", "norm2.*"),
        ("self_attn.*.*", "attn.*.*"),
        ("mlp.fc1.*", "mlp.up_proj.*"),
        ("mlp.fc2.*", "mlp.down_proj.*"),
        ("gate_attn", "scale1"),
        ("gate_ffn", "scale2"),
    ];
    // Global layers are numbered behind the local ones.
    let moved = (0..globals).map(|number| {
        prefix(
            &format!("encoder.global_transformer.layers.{number}"),
            &format!("encoder.layers.{}", locals + number),
        )
    });
    let names = parts
        .map(|(from, to)| rename(&format!("encoder.layers.*.{from}"), &format!("encoder.layers.*.{to}")));
    let tables = [
        ("pre_tile_positional_embedding.embedding.weight", "tiles.before.weight"),
        ("pre_tile_positional_embedding.gate", "tiles.before.gate"),
        ("post_tile_positional_embedding.embedding.weight", "tiles.after.weight"),
        ("post_tile_positional_embedding.gate", "tiles.after.gate"),
        ("gated_positional_embedding.tile_embedding.weight", "tiles.positions.weight"),
        ("gated_positional_embedding.gate", "tiles.positions.gate"),
        ("gated_positional_embedding.embedding", "positions.weight"),
        ("class_embedding", "class_token"),
    ];
    let tables = tables.map(|(from, to)| rename(&format!("encoder.{from}"), &format!("encoder.{to}")));
    [
        towers([
            ("vision_tower", "encoder"),
            ("vision_model", "encoder"),
            ("multi_modal_projector", "encoder.connector.projection"),
        ]),
        modules([
            ("patch_embedding", "patch_embed"),
            ("layernorm_pre", "input_norm"),
            ("layernorm_post", "tiles.norm"),
        ]),
        vec![prefix("encoder.transformer.layers", "encoder.layers")],
        moved.collect(),
        names.into(),
        tables.into(),
    ]
    .concat()
}
