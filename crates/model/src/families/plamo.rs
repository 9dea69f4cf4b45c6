//! PLaMo 13B: attention and MLP beside each other after one RMS norm.
//!
//! Source: mlx-lm `models/plamo.py`. Head `h` reads the keys of head `h mod kv_heads`, so queries are put in the order of
//! their keys.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let shared: usize = cfg.or("n_shared_head", 8)?;
    let dims = Dims { kv_heads: dims.heads.div_ceil(shared.max(1)), ..dims };
    let attention = Attention::new(&dims, rope(cfg, &dims)?);
    let layer = LayerSpec::pre_norm(attention, GatedMlp::read(cfg)?, dims.norm)
        .with_norms(NormPlacement::Parallel { norm: "norm" });
    let rewrites = [vec![prefix("model.layers.layers", "model.layers")], heads_by_key(&dims)].concat();
    Ok(Blueprint { rewrites, ..Blueprint::uniform(&dims, layer) })
}
