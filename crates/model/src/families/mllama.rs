//! Llama 3.2 Vision: Llama 3.1 with layers of cross attention to pictures, which rows without one pass by.
//!
//! Source: arXiv 2407.21783 §7.2; transformers `models/mllama/modeling_mllama.py`. There, rows in front of a prompt's first
//! picture attend to all of them; here they do not, as in the publisher's code and vLLM.

use super::llama;
use super::names::*;
use super::parts::*;
use crate::*;

/// Tokens behind the vocabulary, which are read and never predicted: pictures have one of them.
const READ_ONLY: usize = 8;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    text.only("model_type", "mllama_text_model")?;
    text.only("tie_word_embeddings", false)?;
    let crossing: Vec<usize> = text.req("cross_attention_layers")?;
    let blueprint = llama::read(&text)?;
    let dims = Dims::read(&text)?;
    let norm = Some(Norm::Rms { eps: dims.norm.eps() });
    let layers = blueprint.layers.into_iter().enumerate().map(|(index, layer)| {
        let Some(number) = crossing.iter().position(|crossing| *crossing == index) else { return layer };
        let Dims { heads, kv_heads, head_dim, .. } = dims;
        LayerSpec {
            mixer_name: "cross_attn",
            mixer: CrossAttention { heads, kv_heads, head_dim, bias: false, norm, number }.into(),
            residual: Residual::TanhGate,
            ..layer
        }
    });
    let gates = tensors_of_layers([
        ("cross_attn_attn_gate", "add_attn_gate"),
        ("cross_attn_mlp_gate", "add_ffn_gate"),
    ]);
    Ok(Blueprint {
        vocab: dims.vocab + READ_ONLY,
        unpredicted: READ_ONLY,
        head: Head::Own,
        layers: layers.collect(),
        rewrites: [text_model(), gates, blueprint.rewrites].concat(),
        ..blueprint
    })
}
