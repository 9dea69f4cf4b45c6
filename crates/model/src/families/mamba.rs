//! Mamba and Falcon Mamba: no attention, no MLP, one recurrence a layer.
//!
//! Source: mlx-lm `models/mamba.py`.

use super::names::*;
use super::parts::*;
use crate::*;

/// Of the norms before layers, whatever the config says.
const EPS: f32 = 1e-5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let norm = Norm::Rms { eps: EPS };
    let falcon = cfg.opt::<String>("model_type")?.as_deref() == Some("falcon_mamba");
    let normed = cfg.or("use_bcdt_rms", falcon)?;
    let eps = cfg.or("mixer_rms_eps", 1e-6)?;
    let hidden = cfg.req("hidden_size")?;
    let mixer = Mamba1 {
        inner: cfg.req("intermediate_size")?,
        state_dim: cfg.req("state_size")?,
        conv_kernel_size: cfg.req("conv_kernel")?,
        step_rank: step_rank(cfg, "time_step_rank", hidden)?,
        bias: cfg.or("use_bias", false)?,
        conv_bias: cfg.or("use_conv_bias", true)?,
        step_norms: normed.then_some(StepNorms::Unweighted(eps)),
    };
    let tied = cfg.or("tie_word_embeddings", true)?;
    let layer = LayerSpec { mixer_name: "mixer", ..LayerSpec::mixer_alone(mixer, norm, "norm") };
    let layers = vec![layer; Dims::layers(cfg, "num_hidden_layers")?];
    let head = if tied { Head::Tied } else { Head::Own };
    let dims = Dims {
        hidden,
        norm,
        head,
        layers: layers.len(),
        heads: 1,
        kv_heads: 1,
        head_dim: 1,
        vocab: cfg.req("vocab_size")?,
        context: 1,
    };
    let rewrites = [
        vec![conv_to_mlx(), prefix("backbone", "model")],
        modules([("model.embeddings", "model.embed_tokens"), ("model.norm_f", "model.norm")]),
    ];
    Ok(Blueprint { context: None, rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}

/// A number, or `auto` for a sixteenth of the stream's width.
pub(super) fn step_rank(cfg: &Config, field: &str, hidden: usize) -> Result<usize, ConfigError> {
    match cfg.choice_opt(field, &[("auto", ())]) {
        Ok(_) => Ok(hidden.div_ceil(16)),
        Err(_) => cfg.req(field),
    }
}
