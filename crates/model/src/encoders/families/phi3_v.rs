//! Phi-3 Vision: CLIP over crops and the whole, squares of patches joined, learned vectors behind their rows, and two linear
//! layers over all of them.
//!
//! Source: the publisher's `image_embedding_phi3_v.py`, `modeling_phi3_v.py`, beside microsoft/Phi-3.5-vision-instruct.

use super::names::*;
use super::siglip::{self, drop};
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::PlainMlp;
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

/// Layers of the published encoder, whose name stands for its sizes.
const LAYERS: usize = 24;
const HEAD_DIM: usize = 64;
const IMAGE: usize = 336;
const PATCH: usize = 14;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let section =
        |name: &str| cfg.section(name)?.ok_or_else(|| ConfigError::Missing { field: name.to_owned() });
    let (image, embedding) = (section("img_processor")?, section("embd_layer")?);
    image.only("name", "clip_vision_model")?;
    image.only("model_name", "openai/clip-vit-large-patch14-336")?;
    image.only("type_feature", "patch")?;
    image.pass_by(&["num_img_tokens"]);
    embedding.only("embedding_cls", "image")?;
    embedding.only("hd_transform_order", "sub_glb")?;
    embedding.only("projection_cls", "mlp")?;
    embedding.only("use_hd_transform", true)?;
    embedding.only("with_learnable_separator", true)?;
    let hidden: usize = image.or("image_dim_out", 1024)?;
    let features = cfg.req("hidden_size")?;
    let norm = Norm::Layer { eps: 1e-5, bias: true };
    let layer = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention::new(hidden / HEAD_DIM),
        mlp: PlainMlp { width: 4 * hidden, act: Activation::QuickGelu, bias: true }.into(),
        scales: LayerScale::None,
    };
    let taken = TakenFrom(image.or("layer_idx", -2f32)? as i64).layers(LAYERS)?;
    let side = IMAGE / PATCH;
    let patches = PatchEmbedding::new(PATCH, false);
    let tower = EncoderBlueprint::new(hidden, patches, layers(taken, &layer), features, rewrites(4 * hidden));
    Ok(EncoderBlueprint {
        class_token: ClassToken::First,
        positions: PositionTable::PerRow { count: side * side + 1 },
        input_norm: Some(norm),
        connector: vec![ConnectorStep::Merge { side: 2, elements: MergedElements::PatchByPatch }],
        separators: Separators::CanvasFirst,
        projection: two_linears(features, Activation::Gelu, features, true),
        ..tower
    })
}

/// `joined`: width of joined patches.
fn rewrites(joined: usize) -> Vec<WeightRewrite> {
    let vectors = [("glb_GN", "encoder.separator"), ("sub_GN", "encoder.newline")];
    let named = vectors.map(|(from, to)| rename(&format!("model.vision_embed_tokens.{from}"), to));
    let flat = vectors.map(|(_, to)| WeightRewrite::Reshape { tensors: to.into(), shape: vec![joined] });
    [
        vec![prefix("model.vision_embed_tokens.img_processor.vision_model", "vision_model")],
        siglip::rewrites(),
        named.into(),
        flat.into(),
        vec![
            prefix("model.vision_embed_tokens.img_projection.0", "encoder.projection.linear_1"),
            prefix("model.vision_embed_tokens.img_projection.2", "encoder.projection.linear_2"),
            drop("encoder.output_norm.*"),
        ],
    ]
    .concat()
}
