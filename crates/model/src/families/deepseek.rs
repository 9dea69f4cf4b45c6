//! DeepSeek LLM and DeepSeekMoE: Llama whose later layers have many small experts and a few that compute every token.
//!
//! Source: mlx-lm `models/deepseek.py`; arXiv 2401.06066.

use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("scoring_func", "softmax")?;
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?);
    let dense = GatedMlp::read(cfg)?;
    let moe = deepseek_moe(cfg, dense, Router::SOFTMAX)?;
    // mlx-lm takes the probabilities as they are.
    let moe = moe.map(|moe| Moe { router: Router::SOFTMAX, ..moe });
    let rewrites = routed_rewrites(dims.layers, moe.as_ref());
    let layer = |mlp: Mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = dense_then_routed(cfg, dims.layers, dense, moe)?.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers) })
}
