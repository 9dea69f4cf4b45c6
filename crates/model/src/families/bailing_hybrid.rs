//! Ling and Ring 2.5: lightning attention in most layers, latent attention in the last of each group.
//!
//! Source: mlx-lm `models/bailing_hybrid.py`.

use super::bailing::*;
use super::bailing_v3;
use super::latent::*;
use super::names::*;
use crate::*;

/// Lightning attention and latent attention, or delta attention and latent attention.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let architectures: Vec<String> = cfg.or("architectures", Vec::new())?;
    if architectures.iter().any(|name| name == "BailingMoeV3ForCausalLM") {
        return bailing_v3::read(cfg);
    }
    let dims = Dims::read_untied(cfg)?;
    let latent = LatentAttention { bias: cfg.or("use_qkv_bias", false)?, ..latent(cfg, &dims)? };
    let rope = Rope::read_partial(cfg, dims.head_dim, 0.5)?;
    let lightning = lightning_attention(cfg, &dims, Position::Rope(rope), cfg.or("use_qk_norm", true)?)?;
    let moe = moe(cfg, GatedMlp::read(cfg)?)?;
    let router = Router {
        scores: RouteScores::Sigmoid,
        correction_bias: cfg.or("moe_router_enable_expert_bias", true)?,
        renormalize: cfg.or("norm_topk_prob", true)?,
        ..moe.router
    };
    let moe = Moe { router, ..moe };
    let recurring = Attention::new(&Dims { kv_heads: dims.heads, ..dims }, Position::None);
    let recurs = |index: usize| {
        let slopes = Lightning::slopes_at(dims.heads, index, dims.layers);
        Lightning { slopes, ..lightning.clone() }.into()
    };
    let rewrites = [
        names(&dims, &moe),
        vec![split_qkv("model.layers.*.self_attn.query_key_value", &recurring), split_latent(&latent)],
    ];
    blueprint(cfg, &dims, moe, (latent.into(), &recurs), rewrites.concat())
}
