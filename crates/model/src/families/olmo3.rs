//! OLMo 3: OLMo 2 with windows in three layers of four; only those without a window have a scaled rotation.
//!
//! Source: mlx-lm `models/olmo3.py`.

use super::by_layer::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let rope = Rope::read(cfg, dims.head_dim)?;
    let global = Attention {
        qk_norm: Some(QkNorm::full_width(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(rope.clone())).with_bias(cfg.or("attention_bias", false)?)
    };
    let local = Attention {
        span: AttentionSpan::Window(cfg.req("sliding_window")?),
        position: Position::Rope(Rope::new(dims.head_dim, rope.base)),
        ..global.clone()
    };
    let mlp = GatedMlp::read(cfg)?;
    let layer = |attention: &Attention| {
        LayerSpec::pre_norm(attention.clone(), mlp, dims.norm).with_norms(NormPlacement::OLMO2)
    };
    let layers = by_kind_or_every(cfg, 4, dims.layers, [layer(&global), layer(&local)])?;
    Ok(Blueprint::new(&dims, layers))
}
