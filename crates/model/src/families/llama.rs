//! Llama 1 to 3.3, Mistral, and the many checkpoints that copy their shape.
//!
//! Source: mlx-lm `models/llama.py`; Hugging Face `LlamaConfig`, `MistralConfig`.

use super::by_layer::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    // Hugging Face reads a window without `layer_types` in Mistral's configs alone.
    let spans = |layers| match cfg.opt::<usize>("sliding_window")? {
        Some(_) if cfg.opt::<Vec<String>>("layer_types")?.is_none() => Ok(vec![AttentionSpan::Full; layers]),
        _ => layer_spans(cfg, layers),
    };
    blueprint(cfg, spans)
}

/// The text model of Mistral Small 3 and its like, for which mlx-lm has a head of its own.
pub(super) fn read_mistral_text(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    Ok(Blueprint { head: dims.head, ..read_mistral(cfg)? })
}

pub(super) fn read_mistral(cfg: &Config) -> Result<Blueprint, ConfigError> {
    blueprint(cfg, |layers| layer_spans(cfg, layers))
}

fn blueprint(
    cfg: &Config,
    spans: impl FnOnce(usize) -> Result<Vec<AttentionSpan>, ConfigError>,
) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let bias = cfg.or("attention_bias", false)?;
    let mlp = GatedMlp { bias: cfg.or("mlp_bias", false)?, ..GatedMlp::read(cfg)? };
    let attention = Attention {
        qkv_bias: bias,
        out_bias: bias,
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    let layer = |span| {
        let mixer = Mixer::Attention(Attention { span, ..attention.clone() });
        LayerSpec::pre_norm(mixer, Mlp::Gated(mlp), dims.norm)
    };
    Ok(Blueprint {
        rewrites: vec![drop("**.rotary_emb.inv_freq")],
        ..Blueprint::new(&dims, spans(dims.layers)?.into_iter().map(layer).collect())
    })
}
