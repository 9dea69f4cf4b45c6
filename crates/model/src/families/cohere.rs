//! Command R and R+: layer norms, attention and MLP beside each other, neighbours rotate together.
//!
//! Source: mlx-lm `models/cohere.py`.

use super::by_layer::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = dims(cfg)?;
    let norm = Norm::Layer { eps: dims.norm.eps(), bias: false };
    let normed = cfg.or("use_qk_norm", false)?;
    let qk_norm = QkNorm { norm, over: NormOver::EachHead, at: NormAt::BeforeRotation };
    let attention = Attention {
        qk_norm: normed.then_some(qk_norm),
        ..Attention::new(&dims, interleaved_rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?)
    };
    let layer = LayerSpec::pre_norm(attention, GatedMlp::read(cfg)?, dims.norm);
    blueprint(cfg, &dims, vec![layer; dims.layers])
}

/// Command R7B and A: three layers with a window and a rotation to each one with neither.
pub(super) fn read_cohere2(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = dims(cfg)?;
    let bias = cfg.or("attention_bias", false)?;
    let global = Attention::new(&dims, Position::None).with_bias(bias);
    let local = Attention {
        span: AttentionSpan::Window(cfg.or("sliding_window", 4096)?),
        position: interleaved_rope(cfg, &dims)?,
        ..global.clone()
    };
    let mlp = GatedMlp::read(cfg)?;
    let layer = |attention: &Attention| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = every(cfg.or("sliding_window_pattern", 4)?, dims.layers, layer(&global), layer(&local));
    blueprint(cfg, &dims, layers)
}

fn dims(cfg: &Config) -> Result<Dims, ConfigError> {
    let (eps, bias) = (cfg.or("layer_norm_eps", 1e-5)?, cfg.or("layer_norm_bias", false)?);
    Ok(Dims { head: Head::Tied, ..Dims::read(cfg)? }.with_layer_norm(eps, bias))
}

fn blueprint(cfg: &Config, dims: &Dims, layers: Vec<LayerSpec>) -> Result<Blueprint, ConfigError> {
    let layers = layers.into_iter().map(|layer| layer.with_norms(NormPlacement::PARALLEL)).collect();
    Ok(Blueprint { logit_scale: cfg.or("logit_scale", 0.0625)?, ..Blueprint::new(dims, layers) })
}
