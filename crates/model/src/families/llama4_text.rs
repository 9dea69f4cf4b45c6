//! Llama 4's dense text model: norms without weights on queries and keys, layers without a rotation.
//!
//! Source: mlx-lm `models/llama4_text.py`.

use super::names::*;
use super::parts::*;
use super::smollm3::rotating_layers;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let norm = Norm::RmsUnweighted { eps: dims.norm.eps() };
    let normed = cfg.or("use_qk_norm", true)?;
    let qk_norm = QkNorm { norm, over: NormOver::Head, at: NormAt::BeforeRotation };
    let attention = Attention {
        qk_norm: normed.then_some(qk_norm),
        ..Attention::new(&dims, interleaved_rope(cfg, &dims)?)
    };
    let mlp = GatedMlp { width: cfg.req("intermediate_size_mlp")?, act: Activation::Silu, bias: false };
    let layer = |rotates: bool| {
        let position = if rotates { attention.position.clone() } else { Position::None };
        LayerSpec::pre_norm(Attention { position, ..attention.clone() }, mlp, dims.norm)
    };
    let layers = rotating_layers(cfg, dims.layers)?.into_iter().map(layer).collect();
    let rewrites =
        [modules([("output", "lm_head")]), parts_of_layers([("feed_forward.*", "mlp.*")])].concat();
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}
