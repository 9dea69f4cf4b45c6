//! Qwen3-Next: three Gated DeltaNet layers to each gated-attention layer, experts in nearly all of them.
//!
//! Source: mlx-lm `models/qwen3_next.py`.

use std::num::NonZeroUsize;

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let count = |field: &str| cfg.req::<NonZeroUsize>(field).map(NonZeroUsize::get);
    cfg.only("use_sliding_window", false)?;
    cfg.only("attention_bias", false)?;
    let dims = Dims::read(cfg)?;
    let rotated = (cfg.or::<f32>("partial_rotary_factor", 0.25)? * dims.head_dim as f32) as usize;
    let attention = Mixer::Attention(Attention {
        out_gate: true,
        qk_norm: Some(QkNorm::PerHead { eps: dims.norm.eps() }),
        ..Attention::new(&dims, Position::Rope(Rope::read(cfg, rotated)?))
    });
    let delta = Mixer::GatedDelta(GatedDelta {
        k_heads: count("linear_num_key_heads")?,
        v_heads: count("linear_num_value_heads")?,
        k_dim: count("linear_key_head_dim")?,
        v_dim: count("linear_value_head_dim")?,
        conv_kernel_size: count("linear_conv_kernel_dim")?,
        norm_eps: dims.norm.eps(),
    });
    let shared = SharedExpert { name: "shared_expert", width: cfg.req("shared_expert_intermediate_size")? };
    let mlps = qwen_mlps(cfg, dims.layers, Some(shared))?;
    let mut rewrites = vec![drop("mtp.**"), conv_to_mlx()];
    rewrites.extend(stack_experts(&mlps));
    rewrites.extend(add_one_to_norms(Some("model.layers.*.mlp.experts.0.up_proj.weight")));
    let attends = layer_kinds(cfg, dims.layers)?;
    let layer = |(mlp, attends): (Mlp, bool)| {
        let (mixer_name, mixer) = if attends { ("self_attn", &attention) } else { ("linear_attn", &delta) };
        LayerSpec { mixer_name, ..LayerSpec::pre_norm(mixer.clone(), mlp, dims.norm) }
    };
    Ok(Blueprint { rewrites, ..Blueprint::new(&dims, mlps.into_iter().zip(attends).map(layer).collect()) })
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
