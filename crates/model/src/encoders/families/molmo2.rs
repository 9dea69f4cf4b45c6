//! Molmo 2: SigLIP over overlapping crops, of which the rows of two layers are joined, pooled by attention and projected by
//! a gated MLP.
//!
//! Source: transformers `models/molmo2/modeling_molmo2.py`.

use super::names::*;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let section =
        |name: &str| cfg.section(name)?.ok_or_else(|| ConfigError::Missing { field: name.to_owned() });
    let (vision, adapter) = (section("vit_config")?, section("adapter_config")?);
    // How training and attention are computed.
    for section in [&vision, &adapter] {
        section.pass_by(&["model_type", "attention_dropout", "residual_dropout", "float32_attention"]);
        section.pass_by(&["attn_implementation", "initializer_range", "image_feature_dropout"]);
    }
    let hidden: usize = vision.req("hidden_size")?;
    let heads = vision.req("num_attention_heads")?;
    vision.only("num_key_value_heads", heads)?;
    vision.only("head_dim", hidden / std::cmp::max(heads, 1))?;
    vision.pass_by(&["image_default_input_size"]);
    let norm = Norm::Layer { eps: vision.or("layer_norm_eps", 1e-6)?, bias: true };
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let mlp = PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into();
    let layer = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention::new(heads),
        mlp,
        scales: LayerScale::None,
    };
    let joined = joined(&adapter, vision.req("num_hidden_layers")?)?;
    let count = joined.iter().max().map_or(0, |last| last + 1);
    let patches = PatchEmbedding::new(side(&vision, "image_patch_size", 14)?, true);
    let patches = PatchEmbedding { layout: PatchLayout::ColoursLast, ..patches };
    let features = text_width(cfg)?;
    let tower = EncoderBlueprint::new(hidden, patches, layers(count, &layer), features, rewrites());
    let placeholder = placeholder(cfg)?;
    Ok(EncoderBlueprint {
        positions: PositionTable::PerRow { count: vision.req("image_num_pos")? },
        joined,
        placeholder: true,
        connector: connector(&adapter, features)?,
        rewrites: [tower.rewrites.clone(), vec![placeholder]].concat(),
        ..tower
    })
}

/// Which layers' rows are joined, in this order; negative ones count from the last.
fn joined(adapter: &Config, layers: usize) -> Result<Vec<usize>, ConfigError> {
    let named: Vec<f32> = adapter.or("vit_layers", vec![-3.0, -9.0])?;
    let layer = |named: &f32| {
        let number = if *named < 0.0 { *named + layers as f32 } else { *named };
        let is_layer = number >= 0.0 && number < layers as f32;
        is_layer.then_some(number as usize).ok_or_else(|| ConfigError::Inconsistent {
            rules: vec![format!("`vit_layers` ({named}) is one of {layers} layers")],
        })
    };
    named.iter().map(layer).collect()
}

fn connector(adapter: &Config, features: usize) -> Result<Vec<ConnectorStep>, ConfigError> {
    let heads = adapter.req("num_attention_heads")?;
    adapter.only("num_key_value_heads", heads)?;
    adapter.only("pooling_attention_mask", true)?;
    adapter.only("text_hidden_size", features)?;
    let act = adapter.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu);
    let (width, head_dim) = (adapter.req("hidden_size")?, adapter.req("head_dim")?);
    Ok(vec![
        ConnectorStep::AttentionPool { heads, head_dim, width },
        ConnectorStep::Gated { act, width: adapter.req("intermediate_size")?, bias: false },
        ConnectorStep::Linear { name: "down_proj", width: features, bias: false },
    ])
}

/// The embedding of the token in whose place features stand, one of those that are not in the text model's vocabulary.
fn placeholder(cfg: &Config) -> Result<WeightRewrite, ConfigError> {
    let text = cfg.section("text_config")?;
    let text = text.ok_or_else(|| ConfigError::Missing { field: "text_config".to_owned() })?;
    let (vocab, more): (usize, usize) = (text.req("vocab_size")?, text.or("additional_vocab_size", 128)?);
    let token: usize = cfg.req("image_patch_id")?;
    let place = token.checked_sub(vocab).filter(|place| *place < more);
    let place = place.ok_or_else(|| ConfigError::Inconsistent {
        rules: vec![format!(
            "`image_patch_id` ({token}) is one of {more} tokens behind the {vocab} of the text"
        )],
    })?;
    let parts = [("before", place), ("encoder.placeholder", 1), ("behind", more - place - 1)];
    let to = parts.into_iter().filter(|(_, rows)| *rows > 0).map(|(name, rows)| (name.into(), rows));
    Ok(WeightRewrite::Split { from: "embeddings.new_embedding".into(), to: to.collect() })
}

fn rewrites() -> Vec<WeightRewrite> {
    [
        towers([("vision_tower", "encoder"), ("vision_backbone", "encoder")]),
        vec![
            rename("language_model.model.wte.new_embedding", "embeddings.new_embedding"),
            rename("model.transformer.wte.new_embedding", "embeddings.new_embedding"),
            rename("encoder.image_vit.positional_embedding", "encoder.positions.weight"),
            prefix("encoder.image_vit.transformer.resblocks", "encoder.blocks"),
            prefix("encoder.image_vit.transformer", "encoder.blocks"),
        ],
        modules([
            ("image_vit.patch_embedding", "patch_embed"),
            ("image_pooling_2d.wq", "connector.pool.q_proj"),
            ("image_pooling_2d.wk", "connector.pool.k_proj"),
            ("image_pooling_2d.wv", "connector.pool.v_proj"),
            ("image_pooling_2d.wo", "connector.pool.o_proj"),
            ("image_projector.w1", "connector.gate_proj"),
            ("image_projector.w2", "connector.down_proj"),
            ("image_projector.w3", "connector.up_proj"),
        ]),
        parts_of_layers(
            "blocks",
            [
                ("attention_norm", "norm1"),
                ("ffn_norm", "norm2"),
                ("attention.wq", "attn.q_proj"),
                ("attention.wk", "attn.k_proj"),
                ("attention.wv", "attn.v_proj"),
                ("attention.wo", "attn.o_proj"),
                ("feed_forward.w1", "mlp.up_proj"),
                ("feed_forward.w2", "mlp.down_proj"),
            ],
        ),
    ]
    .concat()
}
