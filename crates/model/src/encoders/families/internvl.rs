//! InternVL: a tower with a class token and learned scales over tiles, squares of patches merged, a norm and two linear
//! layers.
//!
//! Source: transformers `models/internvl/modeling_internvl.py`.

use super::names::*;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    cfg.only("vision_feature_select_strategy", "default")?;
    let vision = vision(cfg)?;
    vision.only("use_qk_norm", false)?;
    let bias = vision.or("attention_bias", false)?;
    tower(cfg, bias, cfg.or("vision_feature_layer", -1f32)?)
}

/// The layout that the publisher's code has.
pub(super) fn read_chat(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    cfg.only("ps_version", "v2")?;
    let vision = vision(cfg)?;
    vision.pass_by(&["use_flash_attn", "initializer_factor"]);
    vision.only("qk_normalization", false)?;
    let bias = vision.or("qkv_bias", false)?;
    let tower = tower(cfg, bias, cfg.or("select_layer", -1f32)?)?;
    let tensors = [("ls1", "scale1"), ("ls2", "scale2")];
    let scales = tensors.map(|(from, to)| {
        rename(&format!("encoder.encoder.layers.*.{from}"), &format!("encoder.layers.*.{to}"))
    });
    let names = [
        towers([("vision_model", "encoder"), ("mlp1", "encoder.mlp1")]),
        modules([
            ("embeddings.patch_embedding", "patch_embed"),
            ("mlp1.0", "connector.layer_norm"),
            ("mlp1.1", "connector.linear_1"),
            ("mlp1.3", "connector.linear_2"),
        ]),
        vec![
            rename("encoder.embeddings.class_embedding", "encoder.embeddings.cls_token"),
            rename("encoder.embeddings.position_embedding", "encoder.embeddings.position_embeddings"),
        ],
        parts_of_layers(
            "encoder.layers",
            [
                ("norm1", "norm1"),
                ("norm2", "norm2"),
                ("attn.qkv", "attn.qkv"),
                ("attn.proj", "attn.o_proj"),
                ("mlp.fc1", "mlp.up_proj"),
                ("mlp.fc2", "mlp.down_proj"),
            ],
        ),
        scales.into(),
        vec![split_qkv("attn.qkv", tower.hidden)],
    ];
    Ok(EncoderBlueprint { rewrites: [names.concat(), tower.rewrites.clone()].concat(), ..tower })
}

fn tower(cfg: &Config, qkv_bias: bool, layer: f32) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // A mean of patches that only classifiers read, and what training began with.
    vision.pass_by(&["use_mean_pooling", "layer_scale_init_value", "dropout", "hidden_dropout_prob"]);
    vision.pass_by(&["drop_path_rate", "projection_dropout", "use_mask_token", "attention_dropout"]);
    vision.only("use_absolute_position_embeddings", true)?;
    let features = text_width(cfg)?;
    let (hidden, size) = (vision.req("hidden_size")?, side(&vision, "patch_size", 14)?);
    let eps = vision.or("layer_norm_eps", 1e-6)?;
    let norms = [("layer_norm", Norm::Layer { eps, bias: true }), ("rms_norm", Norm::Rms { eps })];
    let norm = vision.choice_opt("norm_type", &norms)?.unwrap_or(Norm::Layer { eps, bias: true });
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let biases = if qkv_bias { Linears::All } else { Linears::Output };
    let heads = vision.req("num_attention_heads")?;
    let spec = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention { biases, ..EncoderAttention::new(heads) },
        mlp: PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into(),
        scales: LayerScale::Vectors,
    };
    let on_a_side = side(&vision, "image_size", 448)? / size.max(1);
    let count = on_a_side * on_a_side + 1;
    let taken = TakenFrom(layer as i64).layers(vision.req("num_hidden_layers")?)?;
    let merged = (1.0 / cfg.or("downsample_ratio", 0.5f32)?).round() as usize;
    let norm_of_merged = Norm::Layer { eps: 1e-5, bias: true };
    let steps = vec![
        ConnectorStep::Merge { side: merged, elements: MergedElements::PatchByPatch },
        ConnectorStep::Norm { name: "layer_norm", norm: norm_of_merged },
    ];
    let patches = PatchEmbedding::new(size, true);
    let patches = PatchEmbedding { channels: vision.or("num_channels", 3)?, ..patches };
    let layers = layers(taken, &spec);
    Ok(EncoderBlueprint {
        class_token: ClassToken::First,
        positions: PositionTable::PerRow { count },
        connector: [steps, two_linears(features, projector_act(cfg)?, features, true)].concat(),
        ..EncoderBlueprint::new(hidden, patches, layers, features, rewrites(hidden, count))
    })
}

fn rewrites(hidden: usize, positions: usize) -> Vec<WeightRewrite> {
    let tensors = [("lambda_1", "scale1"), ("lambda_2", "scale2")];
    let scales = tensors.map(|(from, to)| {
        rename(&format!("encoder.encoder.layer.*.{from}"), &format!("encoder.layers.*.{to}"))
    });
    let table = "encoder.positions.weight";
    [
        towers([("vision_tower", "encoder"), ("multi_modal_projector", "encoder.connector")]),
        modules([("embeddings.patch_embeddings.projection", "patch_embed")]),
        vec![
            rename("encoder.embeddings.cls_token", "encoder.class_token"),
            WeightRewrite::Reshape { tensors: "encoder.class_token".into(), shape: vec![hidden] },
            rename("encoder.embeddings.position_embeddings", table),
            WeightRewrite::Reshape { tensors: table.into(), shape: vec![positions, hidden] },
        ],
        parts_of_layers(
            "encoder.layer",
            [
                ("layernorm_before", "norm1"),
                ("layernorm_after", "norm2"),
                ("attention.q_proj", "attn.q_proj"),
                ("attention.k_proj", "attn.k_proj"),
                ("attention.v_proj", "attn.v_proj"),
                ("attention.projection_layer", "attn.o_proj"),
                ("mlp.fc1", "mlp.up_proj"),
                ("mlp.fc2", "mlp.down_proj"),
            ],
        ),
        scales.into(),
    ]
    .concat()
}
