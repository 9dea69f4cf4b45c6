//! Qwen2 and Qwen2.5: Llama with a bias on queries, keys and values.
//!
//! Source: mlx-lm `models/qwen2.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    no_sliding_window(cfg)?;
    let dims = Dims::read(cfg)?;
    let attention = Attention {
        qkv_bias: true,
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    let layer = LayerSpec::pre_norm(Mixer::Attention(attention), Mlp::Gated(GatedMlp::read(cfg)?), dims.norm);
    Ok(Blueprint {
        rewrites: vec![drop("**.rotary_emb.inv_freq")],
        ..Blueprint::new(&dims, vec![layer; dims.layers])
    })
}
