//! Nemotron 3 and Minitron: layer norms stored as `weight − 1`, an ungated MLP with squared ReLU, partial rotation.
//!
//! Source: mlx-lm `models/nemotron.py`.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?.with_layer_norm(cfg.req("norm_eps")?, true);
    let attention =
        Attention::new(&dims, partial_rope(cfg, &dims, 0.5)?).with_bias(cfg.or("attention_bias", false)?);
    let GatedMlp { width, act, .. } = GatedMlp::read(cfg)?;
    let mlp = PlainMlp { width, act, bias: cfg.or("mlp_bias", false)? };
    let rewrites = ["model.norm.weight", "model.layers.*.*.weight"].map(|norms| WeightRewrite::Add {
        amount: 1.0,
        tensors: norms.into(),
        when: When::Always,
    });
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint { rewrites: rewrites.into(), ..Blueprint::uniform(&dims, layer) })
}
