//! Qwen3-VL and Qwen3.5: Qwen2-VL's tower with learned positions, and mergers of earlier layers, whose features join the
//! text model's first layers.
//!
//! Source: transformers `models/qwen3_vl/modeling_qwen3_vl.py`, `models/qwen3_5/modeling_qwen3_5.py`.

use super::names::*;
use super::qwen2_vl;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    let norm = Norm::Layer { eps: 1e-6, bias: true };
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let mlp = PlainMlp { width: vision.req("intermediate_size")?, act, bias: true }.into();
    let hidden = vision.req("hidden_size")?;
    let tower = qwen2_vl::tower(&vision, hidden, (norm, mlp), vision.req("out_hidden_size")?)?;
    let positions: usize = vision.req("num_position_embeddings")?;
    let merger = qwen2_vl::merger(&tower, norm);
    // Mergers of earlier layers norm what they have merged.
    let merger_of_layer = match merger.as_slice() {
        [norm, merge, linears @ ..] => [&[*merge, *norm], linears].concat(),
        _ => Vec::new(),
    };
    let deepstack: Vec<usize> = vision.or("deepstack_visual_indexes", Vec::new())?;
    let deepstack =
        deepstack.into_iter().map(|layer| Deepstack { layer, connector: merger_of_layer.clone() });
    Ok(EncoderBlueprint {
        patches: PatchEmbedding { bias: true, ..tower.patches },
        positions: PositionTable::Square { side: positions.isqrt(), sampling: Sampling::AlignedCorners },
        connector: merger,
        deepstack: deepstack.collect(),
        ..tower
    })
}
