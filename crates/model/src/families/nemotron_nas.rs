//! Nemotron Super and Ultra, found by architecture search: layers of different sizes, some without attention or an MLP.
//!
//! Source: mlx-lm `models/nemotron-nas.py`; arXiv 2411.19146.

use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let position = rope(cfg, &dims)?;
    let biases = (cfg.or("attention_bias", false)?, cfg.or("mlp_bias", false)?);
    let act = cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu);
    let layer = |block: &Config| -> Result<LayerSpec, ConfigError> {
        let (mixer, mlp) = (mixer(block, &dims, &position, biases.0)?, mlp(block, &dims, act, biases.1)?);
        let (before, before_mlp) = ("input_layernorm", "post_attention_layernorm");
        Ok(match (mixer, mlp) {
            (Some(mixer), Some(mlp)) => LayerSpec::pre_norm(mixer, mlp, dims.norm),
            (Some(mixer), None) => LayerSpec::mixer_alone(mixer, dims.norm, before),
            (None, Some(mlp)) => LayerSpec::mlp_alone(mlp, dims.norm, before_mlp),
            (None, None) => LayerSpec { mlp: None, ..LayerSpec::mixer_alone(Absent, dims.norm, before) }
                .with_norms(NormPlacement::Nothing),
        })
    };
    let blocks = cfg.sections("block_configs")?;
    if blocks.len() != dims.layers {
        let rule = format!("`block_configs` ({}) describes every layer ({})", blocks.len(), dims.layers);
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    Ok(Blueprint::new(&dims, blocks.iter().map(layer).collect::<Result<_, _>>()?))
}

fn mixer(block: &Config, dims: &Dims, position: &Position, bias: bool) -> Result<Option<Mixer>, ConfigError> {
    let Some(cfg) = block.section("attention")? else { return Ok(None) };
    cfg.pass_by(&["sparsify", "window_length", "num_sink_tokens", "use_prefill_window_in_sink_attention"]);
    cfg.pass_by(&["unshifted_sink", "n_heads_in_group"]);
    let linear = cfg.or("replace_with_linear", false)?;
    if cfg.or("no_op", false)? {
        return Ok(None);
    }
    if linear {
        return Ok(Some(PerPosition(LinearMlp { bias }.into()).into()));
    }
    let shared: usize = cfg.req("n_heads_in_group")?;
    let dims = Dims { kv_heads: dims.heads / shared.max(1), ..*dims };
    Ok(Some(Attention::new(&dims, position.clone()).with_bias(bias).into()))
}

fn mlp(block: &Config, dims: &Dims, act: Activation, bias: bool) -> Result<Option<Mlp>, ConfigError> {
    /// Widths are multiples of this.
    const MULTIPLE: usize = 256;
    let Some(cfg) = block.section("ffn")? else { return Ok(None) };
    cfg.pass_by(&["sparsify", "ffn_mult"]);
    let linear = cfg.or("replace_with_linear", false)?;
    if cfg.or("no_op", false)? {
        return Ok(None);
    }
    if linear {
        return Ok(Some(LinearMlp { bias }.into()));
    }
    let factor: f32 = cfg.req("ffn_mult")?;
    let width = (2.0 * f64::from(factor) * dims.hidden as f64 / 3.0) as usize;
    Ok(Some(GatedMlp { width: width.next_multiple_of(MULTIPLE), act, bias }.into()))
}
