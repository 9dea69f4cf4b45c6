//! Qwen3-Next: three Gated DeltaNet layers to each gated-attention layer, experts in nearly all of them.
//!
//! Source: mlx-lm `models/qwen3_next.py`.

use std::num::NonZeroUsize;

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let (dims, attention, delta) = mixers(cfg)?;
    let shared = SharedExpert {
        name: "shared_expert",
        width: cfg.req("shared_expert_intermediate_size")?,
        gate: SharedGate::Sigmoid,
        act: None,
    };
    let mlps = qwen_mlps(cfg, dims.layers, Some(shared))?;
    let mut rewrites = vec![drop("mtp.**"), conv_to_mlx()];
    rewrites.extend(part_by_part(&delta));
    rewrites.extend(stack_experts(&mlps));
    rewrites.extend(add_one_to_norms(When::Published("model.layers.*.mlp.experts.0.up_proj.weight".into())));
    Ok(Blueprint { rewrites, ..blueprint(cfg, &dims, attention, delta, mlps)? })
}

/// Its gated attention and its delta rule.
pub(super) fn mixers(cfg: &Config) -> Result<(Dims, Attention, GatedDelta), ConfigError> {
    let count = |field: &str| cfg.req::<NonZeroUsize>(field).map(NonZeroUsize::get);
    cfg.only("use_sliding_window", false)?;
    cfg.only("attention_bias", false)?;
    cfg.only("attn_output_gate", true)?;
    let dims = Dims::read(cfg)?;
    let attention = Attention {
        out_gate: Some(OutputGate::InQueries),
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, partial_rope(cfg, &dims, 0.25)?)
    };
    let delta = GatedDelta {
        k_heads: count("linear_num_key_heads")?,
        v_heads: count("linear_num_value_heads")?,
        k_dim: count("linear_key_head_dim")?,
        v_dim: count("linear_value_head_dim")?,
        conv_kernel_size: count("linear_conv_kernel_dim")?,
        norm_eps: dims.norm.eps(),
    };
    Ok((dims, attention, delta))
}

/// The network of its layers.
pub(super) fn blueprint(
    cfg: &Config,
    dims: &Dims,
    attention: Attention,
    delta: GatedDelta,
    mlps: Vec<Mlp>,
) -> Result<Blueprint, ConfigError> {
    let (attention, delta) = (Mixer::from(attention), Mixer::from(delta));
    let layer = |(mlp, attends): (Mlp, bool)| {
        let (mixer_name, mixer) = if attends { ("self_attn", &attention) } else { ("linear_attn", &delta) };
        LayerSpec { mixer_name, ..LayerSpec::pre_norm(mixer.clone(), mlp, dims.norm) }
    };
    let attends = layer_kinds(cfg, dims.layers)?;
    Ok(Blueprint::new(dims, mlps.into_iter().zip(attends).map(layer).collect()))
}

/// Which layers attend: every `full_attention_interval`-th, or as `layer_types` says, which must then agree.
fn layer_kinds(cfg: &Config, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let period = cfg.opt::<NonZeroUsize>("full_attention_interval")?.map_or(4, NonZeroUsize::get);
    let kinds: Vec<bool> = (1..=layers).map(|layer| layer.is_multiple_of(period)).collect();
    let said = cfg.opt::<Vec<String>>("layer_types")?;
    let name = |attends: bool| if attends { "full_attention" } else { "linear_attention" };
    if said.is_some_and(|said| !said.iter().eq(kinds.iter().map(|attends| name(*attends)))) {
        return Err(ConfigError::Inconsistent {
            rules: vec![format!("`layer_types` repeats every `full_attention_interval` ({period}) layers")],
        });
    }
    Ok(kinds)
}

/// Published projections are stored key head by key head; ours are stored part by part.
fn part_by_part(spec: &GatedDelta) -> Vec<WeightRewrite> {
    let shared = spec.v_heads / spec.k_heads.max(1);
    let values = shared * spec.v_dim;
    let reordered = [
        ("in_proj_qkvz", vec![spec.k_dim, spec.k_dim, values, values]),
        ("in_proj_ba", vec![shared, shared]),
    ];
    let reordered = reordered.map(|(name, widths)| WeightRewrite::TakeRows {
        tensors: format!("model.layers.*.linear_attn.{name}.*").into(),
        rows: apart(spec.k_heads, &widths),
    });
    let at = |name: &str| format!("model.layers.*.linear_attn.{name}");
    let split = vec![
        split(&at("in_proj_qkvz"), &[("in_proj_qkv", spec.conv_channels()), ("in_proj_z", spec.values())]),
        split(&at("in_proj_ba"), &[("in_proj_b", spec.v_heads), ("in_proj_a", spec.v_heads)]),
    ];
    [reordered.to_vec(), split].concat()
}
