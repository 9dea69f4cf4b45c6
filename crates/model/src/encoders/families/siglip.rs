//! SigLIP and CLIP: patches, learned positions, pre-norm layers with biases. Families differ in what stands before and
//! behind the layers.
//!
//! Source: transformers `models/siglip/modeling_siglip.py`, `models/clip/modeling_clip.py`.

use super::names::*;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

/// What fields mean that a config leaves out.
pub(super) struct Defaults {
    pub(super) act: Activation,
    pub(super) eps: f32,
    pub(super) layers: usize,
    /// MLP widths, by the width of the stream.
    pub(super) intermediate: fn(usize) -> Option<usize>,
}

impl Defaults {
    pub(super) const SIGLIP: Self =
        Self { act: Activation::GeluTanh, eps: 1e-6, layers: 12, intermediate: |_| None };
    pub(super) const CLIP: Self =
        Self { act: Activation::QuickGelu, eps: 1e-5, layers: 12, intermediate: |_| None };
}

/// A tower without positions and a connector, with an output norm.
pub(super) fn read(
    vision: &Config,
    defaults: &Defaults,
    features: usize,
) -> Result<EncoderBlueprint, ConfigError> {
    let hidden = vision.req("hidden_size")?;
    let width = vision.opt("intermediate_size")?.or((defaults.intermediate)(hidden));
    let width =
        width.ok_or_else(|| ConfigError::Missing { field: "vision_config.intermediate_size".to_owned() })?;
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(defaults.act);
    let norm = Norm::Layer { eps: vision.or("layer_norm_eps", defaults.eps)?, bias: true };
    let layer = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention::new(vision.req("num_attention_heads")?),
        mlp: PlainMlp { width, act, bias: true }.into(),
        scales: LayerScale::None,
    };
    let count = vision.or("num_hidden_layers", defaults.layers)?;
    let patches = PatchEmbedding::new(side(vision, "patch_size", 16)?, true);
    let patches = PatchEmbedding { channels: vision.or("num_channels", 3)?, ..patches };
    let tower = EncoderBlueprint::new(hidden, patches, layers(count, &layer), features, rewrites());
    Ok(EncoderBlueprint { output_norm: Some(norm), ..tower })
}

/// Positions of a picture of the trained size, on a side.
pub(super) fn positions_on_a_side(vision: &Config, patches: PatchEmbedding) -> Result<usize, ConfigError> {
    Ok(side(vision, "image_size", 224)? / patches.size.max(1))
}

/// What parts of layers are called.
pub(super) const PARTS: [(&str, &str); 8] = [
    ("layer_norm1", "norm1"),
    ("layer_norm2", "norm2"),
    ("self_attn.q_proj", "attn.q_proj"),
    ("self_attn.k_proj", "attn.k_proj"),
    ("self_attn.v_proj", "attn.v_proj"),
    ("self_attn.out_proj", "attn.o_proj"),
    ("mlp.fc1", "mlp.up_proj"),
    ("mlp.fc2", "mlp.down_proj"),
];

/// Names of all of them.
pub(super) fn rewrites() -> Vec<WeightRewrite> {
    [
        towers([
            ("vision_tower.vision_model", "encoder"),
            ("vision_tower", "encoder"),
            ("vision_model", "encoder"),
            ("multi_modal_projector", "encoder.connector"),
            ("connector", "encoder.connector"),
        ]),
        modules([
            ("embeddings.patch_embedding", "patch_embed"),
            ("embeddings.position_embedding", "positions"),
            ("pre_layrnorm", "input_norm"),
            ("post_layernorm", "output_norm"),
        ]),
        vec![rename("encoder.embeddings.class_embedding", "encoder.class_token")],
        // A checkpoint's own name for the layers' parent becomes ours.
        parts_of_layers("encoder.layers", PARTS),
        // Where rows once were in a picture, a pooling that texts are compared with, and the position of each row.
        ["encoder.embeddings.position_ids", "encoder.head.**"].map(drop).into(),
    ]
    .concat()
}

/// Tensors under this pattern go unread.
pub(super) fn drop(tensors: &str) -> WeightRewrite {
    WeightRewrite::Drop { tensors: tensors.into() }
}
