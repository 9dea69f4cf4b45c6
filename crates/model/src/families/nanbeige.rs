//! Nanbeige: Llama's layers, which compute several times over.
//!
//! Source: mlx-lm `models/nanbeige.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    for field in ["enable_double_loop_split", "loop_share_kv", "enable_depth_attention"] {
        cfg.only(field, false)?;
    }
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?);
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    let weights: Option<Vec<f32>> = cfg.opt("loop_loss_weights")?;
    let loops = cfg.or("num_loops", 1)?;
    // A loss for each pass but the first.
    let count = weights.filter(|weights| !weights.is_empty()).map_or(loops, |weights| weights.len() + 1);
    let each_normed = !cfg.or("skip_loop_final_norm", false)?;
    Ok(Blueprint {
        passes: Passes::Several { count, each_normed },
        rewrites: vec![drop("**.rotary_emb.inv_freq")],
        ..Blueprint::new(&dims, vec![layer; dims.layers * count])
    })
}
