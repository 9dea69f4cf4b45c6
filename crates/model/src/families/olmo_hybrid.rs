//! OLMo Hybrid: delta attention in most layers, attention with norms behind it in the others.
//!
//! Source: mlx-lm `models/olmo_hybrid.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention {
        qk_norm: Some(QkNorm::full_width(dims.norm.eps())),
        ..Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?)
    };
    let delta = DeltaAttention {
        k_heads: cfg.req("linear_num_key_heads")?,
        v_heads: cfg.req("linear_num_value_heads")?,
        k_dim: cfg.req("linear_key_head_dim")?,
        v_dim: cfg.req("linear_value_head_dim")?,
        conv_kernel_size: cfg.req("linear_conv_kernel_dim")?,
        decay: Decay::PerHead,
        decay_rank: None,
        write_scale: if cfg.or("linear_allow_neg_eigval", false)? { 2.0 } else { 1.0 },
        gate: DeltaGate::Silu,
        gate_rank: None,
        norm_eps: cfg.or("layer_norm_epsilon", 1e-5)?,
    };
    let mlp = GatedMlp::read(cfg)?;
    let attends = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::OLMO2);
    let recurs = LayerSpec { mixer_name: "linear_attn", ..LayerSpec::pre_norm(delta, mlp, dims.norm) };
    let kinds = [("full_attention", attends.clone()), ("linear_attention", recurs.clone())];
    let layers = match layers_of_kinds(cfg, dims.layers, &kinds)? {
        Some(layers) => layers,
        None => every(4, dims.layers, attends, recurs),
    };
    let rewrites = [delta_convs(), parts_of_layers([("linear_attn.a_proj", "linear_attn.f_proj")])];
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}
