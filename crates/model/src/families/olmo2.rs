//! OLMo 2: norms after the mixer and the MLP, and over whole queries and keys.
//!
//! Source: mlx-lm `models/olmo2.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let bias = cfg.or("attention_bias", false)?;
    let mlp = GatedMlp { bias: cfg.or("mlp_bias", false)?, ..GatedMlp::read(cfg)? };
    let attention = Attention {
        qkv_bias: bias,
        out_bias: bias,
        qk_norm: Some(QkNorm::full_width(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, dims.head_dim)?))
    };
    let layer = LayerSpec::pre_norm(Mixer::Attention(attention), Mlp::Gated(mlp), dims.norm);
    let layer = LayerSpec { norm_placement: NormPlacement::OLMO2, ..layer };
    Ok(Blueprint {
        rewrites: vec![drop("**.rotary_emb.inv_freq")],
        ..Blueprint::new(&dims, vec![layer; dims.layers])
    })
}
