//! Kimi Linear: Kimi's delta attention with latent attention in every few layers, and nothing that rotates.
//!
//! Source: mlx-lm `models/kimi_linear.py`; arXiv 2510.26692.

use super::kimi::*;
use super::kimi_k3;
use super::latent::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    // The text model of Kimi K3 is published under this type, too.
    if cfg.opt::<String>("hidden_act")?.as_deref() == Some("situ") {
        return kimi_k3::read(cfg);
    }
    let dims = Dims::read_untied(cfg)?;
    let eps = dims.norm.eps();
    let latent = LatentAttention { position: Position::None, ..latent_attention(cfg, &dims, eps)? };
    let section = cfg.section("linear_attn_config")?.ok_or_else(|| missing("linear_attn_config"))?;
    let delta = kimi_delta(&section, eps)?;
    let dense = GatedMlp::read(cfg)?;
    let moe = moe(cfg, dense)?;
    let mlps = dense_then_routed(cfg, dims.layers, dense, Some(moe.clone()))?;
    let recurs: Vec<usize> = section.req("kda_layers")?;
    let layer = |(mlp, number): (Mlp, usize)| {
        let mixer: Mixer = if recurs.contains(&number) { delta.into() } else { latent.clone().into() };
        LayerSpec::pre_norm(mixer, mlp, dims.norm)
    };
    let layers = mlps.into_iter().zip(1..).map(layer).collect();
    let names = kimi_names(&moe, &delta, &latent, dims.layers);
    Ok(Blueprint { rewrites: [vec![drop("model.mtp.**")], names].concat(), ..Blueprint::new(&dims, layers) })
}
