//! Ling 3: delta attention in most layers, latent attention with a gate on each head in the last of each group.
//!
//! Source: mlx-lm `models/bailing_moe_v3.py`.

use super::bailing::*;
use super::latent::*;
use super::names::*;
use crate::*;

/// Delta attention, and latent attention with a gate on each head.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("no_kda_lora", true)?;
    cfg.only("kda_safe_gate", true)?;
    let dims = Dims { head_dim: cfg.or("head_dim", 128)?, ..Dims::read_untied(cfg)? };
    let out_gate = Some(OutputGate::PerHead(HeadGate::Sigmoid));
    let latent = LatentAttention { out_gate, ..latent(cfg, &dims)? };
    let delta = DeltaAttention {
        k_heads: dims.heads,
        v_heads: dims.heads,
        k_dim: dims.head_dim,
        v_dim: dims.head_dim,
        conv_kernel_size: cfg.or("short_conv_kernel_size", 4)?,
        decay: Decay::Bounded(cfg.or("kda_lower_bound", -5.0)?),
        decay_rank: None,
        write_scale: 1.0,
        gate: DeltaGate::Sigmoid,
        gate_rank: None,
        norm_eps: dims.norm.eps(),
    };
    let moe = moe(cfg, GatedMlp::read(cfg)?)?;
    let router = Router { renormalize: true, ..Router::SIGMOID_CORRECTED };
    let router = Router { groups: moe.router.groups, scale: moe.router.scale, ..router };
    let moe = Moe { router, ..moe };
    // What two modules are called depends on the kind of layer.
    let of_kind = |(index, attends): (usize, bool)| {
        let at = |block: &str, name: &str| format!("model.layers.{index}.{block}.{name}");
        let renamed = |from: &str, to: &str| prefix(&at("attention", from), &at("self_attn", to));
        match attends {
            true => vec![renamed("dense", "o_proj"), renamed("g_proj", "gate_proj")],
            false => vec![renamed("o_proj", "o_proj")],
        }
    };
    let rewrites = [
        attends(cfg, &dims)?.into_iter().enumerate().flat_map(of_kind).collect(),
        names(&dims, &moe),
        delta_convs(),
        vec![split_latent(&latent)],
    ];
    blueprint(cfg, &dims, moe, (latent.into(), &|_| delta.into()), rewrites.concat())
}
