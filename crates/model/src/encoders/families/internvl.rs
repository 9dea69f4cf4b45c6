//! InternVL: a tower with a class token and learned scales over tiles, squares of patches merged, a norm and two linear
//! layers.
//!
//! Source: transformers `models/internvl/modeling_internvl.py`.

use super::names::*;
use crate::encoders::*;
use crate::{Activation, Config, ConfigError, Norm, PlainMlp, WeightRewrite};

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // A mean of patches that only classifiers read, and what training began with.
    vision.pass_by(&["use_mean_pooling", "layer_scale_init_value", "dropout", "hidden_dropout_prob"]);
    vision.pass_by(&["drop_path_rate", "projection_dropout", "use_mask_token"]);
    vision.only("use_absolute_position_embeddings", true)?;
    vision.only("use_qk_norm", false)?;
    cfg.only("vision_feature_select_strategy", "default")?;
    let features = text_width(cfg)?;
    let (hidden, size) = (vision.req("hidden_size")?, side(&vision, "patch_size", 14)?);
    let eps = vision.or("layer_norm_eps", 1e-6)?;
    let norm = vision
        .choice_opt(
            "norm_type",
            &[("layer_norm", Norm::Layer { eps, bias: true }), ("rms_norm", Norm::Rms { eps })],
        )?
        .unwrap_or(Norm::Layer { eps, bias: true });
    let act = vision.choice_opt("hidden_act", Activation::CHOICES)?.unwrap_or(Activation::Gelu);
    let biases = if vision.or("attention_bias", false)? { Linears::All } else { Linears::Output };
    let heads = vision.req("num_attention_heads")?;
    let layer = EncoderLayer {
        norm,
        attention: EncoderAttention { heads, biases, rotary: None, windowed: false },
        mlp: PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into(),
        scales: true,
    };
    let on_a_side = side(&vision, "image_size", 448)? / size.max(1);
    let count = on_a_side * on_a_side + 1;
    let all = vision.req("num_hidden_layers")?;
    let taken = TakenFrom(cfg.or("vision_feature_layer", -1f32)? as i64).layers(all)?;
    let merged = (1.0 / cfg.or("downsample_ratio", 0.5f32)?).round() as usize;
    let norm_of_merged = Norm::Layer { eps: 1e-5, bias: true };
    let steps = vec![
        ConnectorStep::Merge { side: merged, elements: MergedElements::PatchByPatch },
        ConnectorStep::Norm { name: "layer_norm", norm: norm_of_merged },
    ];
    Ok(EncoderBlueprint {
        hidden,
        patches: PatchEmbedding { channels: vision.or("num_channels", 3)?, frames: 1, size, bias: true },
        order: PatchOrder::Rows,
        class_token: true,
        positions: PositionTable::PerRow { count },
        input_norm: None,
        layers: layers(taken, &layer),
        window: None,
        output_norm: None,
        connector: [steps, two_linears(features, projector_act(cfg)?, features, true)].concat(),
        deepstack: Vec::new(),
        features,
        rewrites: rewrites(hidden, count),
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
