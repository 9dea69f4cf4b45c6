//! StarCoder2: layer norms, an ungated MLP, biases everywhere.
//!
//! Source: mlx-lm `models/starcoder2.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("use_bias", true)?;
    let dims = Dims::read(cfg)?.with_layer_norm(cfg.or("norm_epsilon", 1e-5)?, true);
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(true);
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act: Activation::Gelu, bias: true };
    let rewrites = parts_of_layers([("mlp.c_fc", "mlp.up_proj"), ("mlp.c_proj", "mlp.down_proj")]);
    Ok(Blueprint { rewrites, ..Blueprint::uniform(&dims, LayerSpec::pre_norm(attention, mlp, dims.norm)) })
}
