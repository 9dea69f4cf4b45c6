//! Mamba-2: no attention, no MLP, one recurrence per layer.
//!
//! Source: mlx-lm `models/mamba2.py`; Hugging Face `Mamba2Config`.

use std::num::NonZeroUsize;

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let count = |field: &str| cfg.req::<NonZeroUsize>(field).map(NonZeroUsize::get);
    let norm = Norm::Rms { eps: cfg.or("layer_norm_epsilon", 1e-5)? };
    let mixer = Mamba2 {
        heads: count("num_heads")?,
        head_dim: count("head_dim")?,
        groups: count("n_groups")?,
        state_dim: count("state_size")?,
        conv_kernel_size: count("conv_kernel")?,
        step_limits: cfg.or("time_step_limit", [Limit(0.0), Limit(f32::INFINITY)])?.map(|limit| limit.0),
        bias: cfg.or("use_bias", false)?,
        conv_bias: cfg.or("use_conv_bias", true)?,
        norm: Some(norm),
        norm_groups: 1,
    };
    let hidden = count("hidden_size")?;
    cfg.only("ssm_state_size", mixer.state_dim)?;
    cfg.only("hidden_act", "silu")?;
    cfg.only("rms_norm", true)?;
    cfg.only("norm_before_gate", false)?;
    let inner = mixer.heads.checked_mul(mixer.head_dim);
    let widths = [
        cfg.opt::<usize>("intermediate_size")?,
        cfg.opt::<usize>("expand")?.map(|times| times.saturating_mul(hidden)),
    ];
    if widths.into_iter().flatten().any(|width| Some(width) != inner) {
        let (heads, head_dim) = (mixer.heads, mixer.head_dim);
        let rule = format!(
            "`num_heads` ({heads}) · `head_dim` ({head_dim}) is `intermediate_size`, and `expand` · `hidden_size` ({hidden})"
        );
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let head = match cfg.opt("tie_word_embeddings")? {
        Some(true) => Head::Tied,
        Some(false) => Head::Own,
        None => Head::OwnIfPresent,
    };
    let layer = LayerSpec { mixer_name: "mixer", ..LayerSpec::mixer_alone(mixer, norm, "norm") };
    let layers = Dims::layers(cfg, "num_hidden_layers")?;
    let dims = Dims {
        hidden,
        layers,
        heads: 1,
        kv_heads: 1,
        head_dim: hidden,
        vocab: count("vocab_size")?,
        context: 0,
        norm,
        head,
    };
    Ok(Blueprint {
        context: None,
        names: Names::MAMBA,
        rewrites: vec![conv_to_mlx()],
        ..Blueprint::uniform(&dims, layer)
    })
}
