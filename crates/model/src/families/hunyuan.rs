//! Hunyuan Large: experts beside a shared MLP, and layers that read the keys of the layer before them.
//!
//! Source: mlx-lm `models/hunyuan.py`.

use super::by_layer::*;
use super::hunyuan_dense::{alpha_rope, norm_names, qk_norm};
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    for (switch, off) in [
        ("use_mla", false),
        ("group_limited_greedy", false),
        ("mlp_bias", false),
        ("position_embedding_xdrope", false),
    ] {
        cfg.only(switch, off)?;
    }
    cfg.only("moe_layer_num_skipped", 0)?;
    let dims = Dims { head: Head::Tied, ..Dims::read(cfg)? };
    let attention = Attention {
        qk_norm: qk_norm(cfg, &dims)?,
        ..Attention::new(&dims, Position::Rope(alpha_rope(cfg, dims.head_dim)?))
    };
    let attention = attention.with_bias(cfg.or("attention_bias", false)?);
    let share = if cfg.or("use_cla", false)? { cfg.or("cla_share_factor", 2)? } else { 1usize }.max(1);
    let layer = |(index, mlp): (usize, Mlp)| {
        let keys = match index % share {
            0 => KeySource::Own,
            past => KeySource::Layer(index - past),
        };
        LayerSpec::pre_norm(Attention { keys, ..attention.clone() }, mlp, dims.norm)
    };
    let layers = mlps(cfg, dims.layers)?.into_iter().enumerate().map(layer).collect();
    let rewrites = [
        parts_of_layers([("mlp.gate.wg", "mlp.gate")]),
        norm_names(),
        stacked_experts(cfg.req("num_experts")?),
        // Keys in the cache have no weights of one layer, so that others read them.
        vec![WeightRewrite::MoveFactors {
            from: "model.layers.*.self_attn.k_norm.weight".into(),
            to: "model.layers.*.self_attn.q_norm.weight".into(),
        }],
        unread_keys((0..dims.layers).filter(|index| index % share > 0)),
    ];
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}

/// Numbers of experts and their widths may differ by layer.
fn mlps(cfg: &Config, layers: usize) -> Result<Vec<Mlp>, ConfigError> {
    let dense = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let experts = cfg.req("num_experts")?;
    let shared = per_layer_or(cfg, "num_shared_expert", layers, 1)?;
    let top_k = per_layer_or(cfg, "moe_topk", layers, 1)?;
    let widths = per_layer_or(cfg, "moe_intermediate_size", layers, dense.width)?;
    let mixed = cfg.or("use_mixed_mlp_moe", false)?;
    // mlx-lm does not read these two, which Hunyuan A13B has.
    let router = Router {
        renormalize: cfg.or("norm_topk_prob", false)?,
        scale: cfg.or("routed_scaling_factor", 1.0)?,
        ..Router::SOFTMAX
    };
    let mlp = |((width, top_k), shared): ((usize, usize), usize)| {
        let shared = mixed.then(|| SharedExpert::new("shared_mlp", shared * dense.width));
        let moe = Moe::new(experts, top_k, dense.with_width(width), router);
        if experts == 1 { dense.into() } else { Moe { shared, ..moe }.into() }
    };
    Ok(widths.into_iter().zip(top_k).zip(shared).map(mlp).collect())
}
