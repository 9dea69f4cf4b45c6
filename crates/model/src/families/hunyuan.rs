//! Hunyuan Large: experts beside a shared MLP, and layers that read the keys of the layer before them.
//!
//! Source: mlx-lm `models/hunyuan.py`.

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
    let layer = |index: usize| -> Result<LayerSpec, ConfigError> {
        let keys = match index % share {
            0 => KeySource::Own,
            past => KeySource::Layer(index - past),
        };
        Ok(LayerSpec::pre_norm(Attention { keys, ..attention.clone() }, mlp(cfg, index)?, dims.norm))
    };
    let layers = (0..dims.layers).map(layer).collect::<Result<Vec<_>, _>>()?;
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

/// A number for all layers, or one for each.
fn at_layer(cfg: &Config, field: &str, index: usize) -> Result<Option<usize>, ConfigError> {
    if let Ok(all) = cfg.opt::<usize>(field) {
        return Ok(all);
    }
    let numbers: Vec<usize> = cfg.req(field)?;
    numbers.get(index).copied().map(Some).ok_or_else(|| super::parts::missing(field))
}

fn mlp(cfg: &Config, index: usize) -> Result<Mlp, ConfigError> {
    let dense = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let experts = cfg.req("num_experts")?;
    let shared = at_layer(cfg, "num_shared_expert", index)?.unwrap_or(1) * dense.width;
    let top_k = at_layer(cfg, "moe_topk", index)?.unwrap_or(1);
    let width = at_layer(cfg, "moe_intermediate_size", index)?.unwrap_or(dense.width);
    if experts == 1 {
        return Ok(dense.into());
    }
    let shared = cfg.or("use_mixed_mlp_moe", false)?.then_some(SharedExpert {
        name: "shared_mlp",
        width: shared,
        gate: SharedGate::None,
        act: None,
    });
    let expert = dense.with_width(width).into();
    // mlx-lm does not read these two, which Hunyuan A13B has.
    let router = Router {
        renormalize: cfg.or("norm_topk_prob", false)?,
        scale: cfg.or("routed_scaling_factor", 1.0)?,
        ..Router::SOFTMAX
    };
    Ok(Moe { experts, top_k, expert, router, shared, latent: None }.into())
}
