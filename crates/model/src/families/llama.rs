//! Llama 1 to 3.3, Mistral, and the many checkpoints that copy their shape.
//!
//! Source: mlx-lm `models/llama.py`; Hugging Face `LlamaConfig`, `MistralConfig`.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    // Hugging Face reads a window without `layer_types` in Mistral's configs alone.
    let reaches = |layers| match cfg.opt::<usize>("sliding_window")? {
        Some(_) if cfg.opt::<Vec<String>>("layer_types")?.is_none() => Ok(vec![Reach::Full; layers]),
        _ => layer_reaches(cfg, layers),
    };
    blueprint(cfg, reaches)
}

pub(super) fn read_mistral(cfg: &Config) -> Result<Blueprint, ConfigError> {
    blueprint(cfg, |layers| layer_reaches(cfg, layers))
}

fn blueprint(
    cfg: &Config,
    reaches: impl FnOnce(usize) -> Result<Vec<Reach>, ConfigError>,
) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let bias = cfg.or("attention_bias", false)?;
    let mlp = Gated { bias: cfg.or("mlp_bias", false)?, ..Gated::read(cfg)? };
    let attention = Attention {
        qkv_bias: bias,
        out_bias: bias,
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    let layer = |reach| {
        let mixer = Mixer::Attention(Attention { reach, ..attention.clone() });
        LayerSpec::pre_norm(mixer, Mlp::Gated(mlp), dims.norm)
    };
    Ok(Blueprint {
        rewrites: vec![drop("**.rotary_emb.inv_freq")],
        ..Blueprint::new(&dims, reaches(dims.layers)?.into_iter().map(layer).collect())
    })
}
