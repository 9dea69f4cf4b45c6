//! dots.ocr: Qwen2-VL's order of patches and its merger around layers with RMS norms and gated MLPs.
//!
//! Source: rednote's `modeling_dots_vision.py` beside the published weights.

use super::names::*;
use super::qwen2_vl;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::GatedMlp;
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // How attention is computed, and where training began.
    vision.pass_by(&["attn_implementation", "init_merger_std", "gradient_checkpointing"]);
    vision.only("is_causal", false)?;
    vision.only("temporal_patch_size", 1)?;
    let (hidden, features) = (vision.req("embed_dim")?, vision.req("hidden_size")?);
    let norm = Norm::Rms { eps: vision.or("rms_norm_eps", 1e-5)? };
    let bias = vision.or("use_bias", false)?;
    let biases = if bias { Linears::All } else { Linears::No };
    let heads = vision.req("num_attention_heads")?;
    let attention =
        EncoderAttention { biases, rotary: Some(qwen2_vl::ROTARY), ..EncoderAttention::new(heads) };
    let mlp = GatedMlp { width: vision.req("intermediate_size")?, act: Activation::Silu, bias }.into();
    let layer = EncoderLayer { norm, after: None, attention, mlp, scales: LayerScale::None };
    let patches = PatchEmbedding::new(vision.or("patch_size", 14)?, true);
    let patches = PatchEmbedding { channels: vision.or("num_channels", 3)?, ..patches };
    let layers = layers(vision.req("num_hidden_layers")?, &layer);
    let tower = EncoderBlueprint {
        order: PatchOrder::Squares(vision.or("spatial_merge_size", 2)?),
        input_norm: Some(norm),
        output_norm: vision.or("post_norm", true)?.then_some(norm),
        ..EncoderBlueprint::new(hidden, patches, layers, features, rewrites(hidden))
    };
    let merger = qwen2_vl::merger(&tower, Norm::Layer { eps: 1e-6, bias: true });
    Ok(EncoderBlueprint { connector: merger, ..tower })
}

fn rewrites(hidden: usize) -> Vec<WeightRewrite> {
    [
        towers([("vision_tower", "encoder")]),
        modules([
            ("patch_embed.patchifier.proj", "patch_embed"),
            ("patch_embed.patchifier.norm", "input_norm"),
            ("post_trunk_norm", "output_norm"),
        ]),
        parts_of_layers(
            "blocks",
            [("mlp.fc1", "mlp.gate_proj"), ("mlp.fc3", "mlp.up_proj"), ("mlp.fc2", "mlp.down_proj")],
        ),
        qwen2_vl::rewrites(hidden),
    ]
    .concat()
}
