//! Baichuan M1: keys and values are mixed with those of the row before; windows with heads of their own in some layers.
//!
//! Source: mlx-lm `models/baichuan_m1.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("conv_window", 2)?;
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let global = dims;
    let heads = cfg.opt("num_swa_attention_heads")?.unwrap_or(dims.heads);
    let local = Dims {
        heads,
        kv_heads: cfg.opt("num_swa_key_value_heads")?.unwrap_or(dims.kv_heads),
        head_dim: dims.hidden / heads.max(1),
        ..dims
    };
    let window = AttentionSpan::Window(cfg.req("sliding_window")?);
    let mlp = GatedMlp { act: Activation::Silu, ..GatedMlp::read(cfg)? };
    let layer = |dims: &Dims, span: AttentionSpan| -> Result<LayerSpec, ConfigError> {
        let attention = Attention { span, ..Attention::new(dims, rope(cfg, dims)?) };
        Ok(LayerSpec::pre_norm(ConvAttention::new(attention), mlp, dims.norm))
    };
    let (full, sliding) = (layer(&global, AttentionSpan::Full)?, layer(&local, window)?);
    let windows: Vec<usize> = cfg.req("sliding_window_layers")?;
    let layers =
        (0..dims.layers).map(|at| if windows.contains(&at) { sliding.clone() } else { full.clone() });
    let joined = |at: usize| {
        let attention = if windows.contains(&at) { &local } else { &global };
        split_qkv(&format!("model.layers.{at}.self_attn.W_pack"), &Attention::new(attention, Position::None))
    };
    let mut rewrites = vec![WeightRewrite::NormalizeOutputs { tensors: "lm_head.weight".into() }];
    rewrites.extend((0..dims.layers).map(joined));
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, layers.collect()) })
}
