//! Mellum 2: Qwen3's experts in every layer, windows in some, a rotation for each kind of layer.
//!
//! Source: mlx-lm `models/mellum.py`.

use super::by_layer::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let [full, sliding] = rope_by_kind(cfg, dims.head_dim)?;
    let global = Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(full))
    };
    let local = Attention {
        span: AttentionSpan::Window(cfg.req("sliding_window")?),
        position: Position::Rope(sliding),
        ..global.clone()
    };
    let renormalize = cfg.or("norm_topk_prob", false)?;
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.req("num_experts")?,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: GatedMlp::read(cfg)?.with_width(cfg.req("moe_intermediate_size")?).into(),
        router: Router { renormalize, ..Router::SOFTMAX },
        shared: None,
    };
    let layer = |attention| LayerSpec::pre_norm(attention, moe.clone(), dims.norm);
    let kinds: Vec<String> = cfg.req("layer_types")?;
    let layers = by_kind(&kinds, dims.layers, layer(global), layer(local))?;
    Ok(Blueprint { rewrites: stacked_experts(moe.experts), ..Blueprint::new(&dims, layers) })
}
