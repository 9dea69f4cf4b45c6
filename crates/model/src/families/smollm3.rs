//! SmolLM3: Llama that rotates in three layers of four.
//!
//! Source: mlx-lm `models/smollm3.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    no_sliding_window(cfg)?;
    let dims = Dims::read(cfg)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?);
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let rotates = rotating_layers(cfg, dims.layers)?;
    let layer = |rotates: bool| {
        let position = if rotates { attention.position.clone() } else { Position::None };
        LayerSpec::pre_norm(Attention { position, ..attention.clone() }, mlp, dims.norm)
    };
    let layers = rotates.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites: vec![drop("**.rotary_emb.inv_freq")], ..Blueprint::new(&dims, layers) })
}

/// `no_rope_layers` has a one for each layer that rotates; without it, all but every `no_rope_layer_interval`-th do.
pub(super) fn rotating_layers(cfg: &Config, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let interval: usize = cfg.or("no_rope_layer_interval", 4)?;
    let flags = match cfg.opt::<Vec<usize>>("no_rope_layers")? {
        Some(flags) => flags.into_iter().map(|flag| flag != 0).collect(),
        None => (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect::<Vec<bool>>(),
    };
    if flags.len() == layers {
        return Ok(flags);
    }
    let rule =
        format!("`no_rope_layers` ({}) names every layer (`num_hidden_layers`: {layers})", flags.len());
    Err(ConfigError::Inconsistent { rules: vec![rule] })
}
