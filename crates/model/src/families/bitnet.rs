//! BitNet: weights of −1, 0 and 1, and a norm before every last projection.
//!
//! Source: mlx-lm `models/bitnet.py`; arXiv 2402.17764.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let attention = Attention {
        out_norm: Some(OutNorm::AllHeads(dims.norm)),
        ..Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?)
    };
    let mlp = GatedMlp {
        width: cfg.req("intermediate_size")?,
        act: Activation::Relu2,
        bias: cfg.or("mlp_bias", false)?,
    };
    let layer = LayerSpec::pre_norm(attention, NormedMlp { mlp, norm: dims.norm }, dims.norm);
    let rewrites = vec![drop("**.rotary_emb.inv_freq")];
    Ok(Blueprint { rewrites, ..Blueprint::uniform(&dims, layer) })
}
