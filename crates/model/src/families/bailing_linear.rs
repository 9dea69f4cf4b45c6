//! The linear models before Ling and Ring 2.5: lightning attention in most layers, attention in the last of each group.
//!
//! Source: mlx-lm `models/bailing_moe_linear.py`.

use super::bailing::*;
use super::bailing_moe;
use super::names::*;
use crate::*;

/// Lightning attention and attention.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = bailing_moe::attention(cfg, &dims)?;
    let norm = attention.qk_norm.is_some();
    let whole = Dims { head_dim: dims.hidden / dims.heads, kv_heads: dims.heads, ..dims };
    let lightning = lightning_attention(cfg, &whole, attention.position.clone(), norm)?;
    let moe = moe(cfg, GatedMlp::read(cfg)?)?;
    let recurring = Attention::new(&whole, Position::None);
    let split = |(index, attends): (usize, bool)| {
        let sizes = if attends { &attention } else { &recurring };
        split_qkv(&format!("model.layers.{index}.self_attn.query_key_value"), sizes)
    };
    let split = attends(cfg, &dims)?.into_iter().enumerate().map(split).collect();
    let rewrites = [head_norm(cfg)?, names(&dims, &moe), split].concat();
    // The first two layers forget alike.
    let recurs = |index: usize| {
        let slopes = Lightning::slopes_at(dims.heads, index.saturating_sub(1), dims.layers);
        Lightning { slopes, ..lightning.clone() }.into()
    };
    blueprint(cfg, &dims, moe, (attention.clone().into(), &recurs), rewrites)
}
