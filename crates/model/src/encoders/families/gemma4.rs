//! Gemma 4: patches with positions by column and row, 2-D rotation in halves of heads, norms on both sides of each part,
//! squares of patches averaged, and one projection. Small models clip what linear layers read and give.
//!
//! Source: transformers `models/gemma4/modeling_gemma4.py`.

use super::names::*;
use super::siglip::drop;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, GatedMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // Sizes of pictures and their numbers of tokens, which processors know.
    vision.pass_by(&[
        "default_output_length",
        "global_head_dim",
        "max_position_embeddings",
        "attention_bias",
    ]);
    let (hidden, heads): (usize, usize) = (vision.req("hidden_size")?, vision.req("num_attention_heads")?);
    vision.only("num_key_value_heads", heads)?;
    vision.only("head_dim", hidden / heads.max(1))?;
    let rope = vision.section("rope_parameters")?;
    rope.iter().try_for_each(|section| section.only("rope_type", "default"))?;
    let base = rope.map(|section| section.opt("rope_theta")).transpose()?.flatten().unwrap_or(100.0);
    let eps = vision.or("rms_norm_eps", 1e-6)?;
    let rotary = Rotary2d { base, axes: RotaryAxes::ColumnsFirst, pairs: PatchPairs::HalvesOfAxes };
    let act = vision.choice_opt("hidden_activation", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let layer = EncoderLayer {
        norm: Norm::Rms { eps },
        after: Some(Norm::Rms { eps }),
        attention: EncoderAttention {
            biases: Linears::No,
            rotary: Some(rotary),
            qk_norm: Some(eps),
            value_norm: Some(eps),
            scale: Some(1.0),
            ..EncoderAttention::new(heads)
        },
        mlp: GatedMlp { width: vision.req("intermediate_size")?, act, bias: false }.into(),
        scales: LayerScale::None,
    };
    let size = vision.or("patch_size", 16)?;
    let (layout, range) = (PatchLayout::ColoursLast, PixelRange::Unit);
    let patches = PatchEmbedding { layout, range, ..PatchEmbedding::new(size, false) };
    let layers = layers(vision.req("num_hidden_layers")?, &layer);
    let count = vision.or("position_embedding_size", 10_240)?;
    let (clipped, features) = (vision.or("use_clipped_linears", false)?, text_width(cfg)?);
    let pooled = [
        ConnectorStep::Pool { side: vision.or("pooling_kernel_size", 3)? },
        ConnectorStep::Scale((hidden as f32).sqrt()),
    ];
    let standardized = vision.or("standardize", false)?.then_some(ConnectorStep::Standardize);
    let projected = [
        ConnectorStep::Norm { name: "norm", norm: Norm::RmsUnweighted { eps } },
        ConnectorStep::Linear { name: "embedding_projection", width: features, bias: false },
    ];
    Ok(EncoderBlueprint {
        positions: PositionTable::Axes { count },
        clipped,
        connector: pooled.into_iter().chain(standardized).chain(projected).collect(),
        ..EncoderBlueprint::new(hidden, patches, layers, features, rewrites(clipped, count, hidden))
    })
}

fn rewrites(clipped: bool, positions: usize, hidden: usize) -> Vec<WeightRewrite> {
    let table = "encoder.positions.weight";
    let unread = ["input_min", "input_max", "output_min", "output_max"];
    let unread = unread.iter().filter(|_| !clipped).map(|limit| drop(&format!("encoder.**.{limit}")));
    let linears = [
        ("self_attn.q_proj", "attn.q_proj"),
        ("self_attn.k_proj", "attn.k_proj"),
        ("self_attn.v_proj", "attn.v_proj"),
        ("self_attn.o_proj", "attn.o_proj"),
        ("mlp.gate_proj", "mlp.gate_proj"),
        ("mlp.up_proj", "mlp.up_proj"),
        ("mlp.down_proj", "mlp.down_proj"),
    ];
    let inner = linears.map(|(from, to)| {
        rename(&format!("encoder.encoder.layers.*.{from}.linear.*"), &format!("encoder.layers.*.{to}.*"))
    });
    [
        towers([("vision_tower", "encoder"), ("embed_vision", "encoder.connector")]),
        unread.collect(),
        modules([("patch_embedder.input_proj", "patch_embed")]),
        vec![
            rename("encoder.patch_embedder.position_embedding_table", table),
            WeightRewrite::Reshape { tensors: table.into(), shape: vec![2 * positions, hidden] },
            rename("encoder.std_bias", "encoder.connector.shift"),
            rename("encoder.std_scale", "encoder.connector.scale"),
        ],
        inner.into(),
        parts_of_layers("encoder.layers", linears),
        parts_of_layers(
            "encoder.layers",
            [
                ("input_layernorm", "norm1"),
                ("post_attention_layernorm", "norm1_after"),
                ("pre_feedforward_layernorm", "norm2"),
                ("post_feedforward_layernorm", "norm2_after"),
                ("self_attn.q_norm", "attn.q_norm"),
                ("self_attn.k_norm", "attn.k_norm"),
            ],
        ),
    ]
    .concat()
}
