//! GLM-4.1V, GLM-4.5V and GLM-OCR: Qwen2-VL's tower with RMS norms and gated MLPs, squares of patches joined by a
//! convolution, and a gated merger. The first two have learned positions, the third norms of queries and keys.
//!
//! Source: transformers `models/glm4v/modeling_glm4v.py`, `models/glm_ocr/modeling_glm_ocr.py`.

use super::names::*;
use super::qwen2_vl;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, GatedMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    let (features, context) = (vision.req("out_hidden_size")?, vision.req("intermediate_size")?);
    // The widths of the MLPs and of the merger are exchanged, as in the published models.
    let tower = tower(&vision, features, context)?;
    let image = side(&vision, "image_size", 336)?;
    let on_a_side = image.checked_div(tower.patches.size).unwrap_or(0);
    Ok(EncoderBlueprint {
        patch_norm: tower.output_norm,
        positions: PositionTable::Square { side: on_a_side, sampling: Sampling::Bicubic },
        ..tower
    })
}

pub(super) fn read_ocr(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    vision.pass_by(&["image_size"]);
    let features: usize = vision.req("out_hidden_size")?;
    let context = features * vision.or("in_channels", 3)?;
    let mut tower = tower(&vision, vision.req("intermediate_size")?, context)?;
    let eps = vision.or("rms_norm_eps", 1e-5)?;
    tower.layers.iter_mut().for_each(|layer| layer.attention.qk_norm = Some(eps));
    Ok(tower)
}

/// Without positions. `width`: of the MLPs; `context`: of the merger.
fn tower(vision: &Config, width: usize, context: usize) -> Result<EncoderBlueprint, ConfigError> {
    vision.pass_by(&["hidden_dropout_prob", "attention_dropout"]);
    let (hidden, features) = (vision.req("hidden_size")?, vision.req("out_hidden_size")?);
    let norm = Norm::Rms { eps: vision.or("rms_norm_eps", 1e-5)? };
    let bias = vision.or("attention_bias", false)?;
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu);
    let mlp = GatedMlp { width, act, bias };
    let mut tower = qwen2_vl::tower(vision, hidden, (norm, mlp.into()), features)?;
    let biases = if bias { Linears::All } else { Linears::No };
    tower.layers.iter_mut().for_each(|layer| layer.attention.biases = biases);
    let joined = Norm::Layer { eps: 1e-5, bias: true };
    let side = qwen2_vl::merged_side(&tower);
    Ok(EncoderBlueprint {
        patches: PatchEmbedding { bias: true, ..tower.patches },
        output_norm: Some(norm),
        connector: vec![
            ConnectorStep::Merge { side, elements: MergedElements::PatchByPatch },
            ConnectorStep::Linear { name: "downsample", width: features, bias: true },
            ConnectorStep::Linear { name: "proj", width: features, bias: false },
            ConnectorStep::Norm { name: "post_projection_norm", norm: joined },
            ConnectorStep::Act(Activation::Gelu),
            ConnectorStep::Gated { act, width: context, bias: false },
            ConnectorStep::Linear { name: "down_proj", width: features, bias: false },
        ],
        rewrites: [tower.rewrites.clone(), rewrites()].concat(),
        ..tower
    })
}

fn rewrites() -> Vec<WeightRewrite> {
    [
        modules([
            ("downsample", "connector.downsample"),
            ("post_layernorm", "output_norm"),
            ("post_conv_layernorm", "patch_norm"),
            ("embeddings.position_embedding", "positions"),
        ]),
        parts_of_layers("blocks", [("attn.q_norm", "attn.q_norm"), ("attn.k_norm", "attn.k_norm")]),
    ]
    .concat()
}
