//! Models that differ from Llama in a field or two: Ernie 4.5, Helium, MiMo, Seed-OSS, TeleChat3.
//!
//! Source: mlx-lm's modules of the same names.

use super::names::*;
use super::parts::*;
use crate::*;

/// Helium: neighbours rotate together.
pub(super) fn read_helium(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let attention = Attention {
        qkv_bias: cfg.or("attention_bias", false)?,
        ..Attention::new(&dims, interleaved_rope(cfg, &dims)?)
    };
    blueprint(cfg, &dims, attention, "mlp_bias")
}

/// Ernie 4.5: the same, with one field for all biases.
pub(super) fn read_ernie(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let attention =
        Attention::new(&dims, interleaved_rope(cfg, &dims)?).with_bias(cfg.or("use_bias", false)?);
    blueprint(cfg, &dims, attention, "use_bias")
}

/// MiMo 7B: a bias on queries, keys and values, and heads that predict further tokens.
pub(super) fn read_mimo(cfg: &Config) -> Result<Blueprint, ConfigError> {
    no_sliding_window(cfg)?;
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention { qkv_bias: true, ..Attention::new(&dims, rope(cfg, &dims)?) };
    blueprint(cfg, &dims, attention, "mlp_bias")
}

/// Seed-OSS: heads whose widths together are not the stream's.
pub(super) fn read_seed_oss(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let attention = Attention {
        qkv_bias: cfg.or("attention_bias", false)?,
        out_bias: cfg.or("attention_out_bias", false)?,
        ..Attention::new(&dims, rope(cfg, &dims)?)
    };
    blueprint(cfg, &dims, attention, "mlp_bias")
}

/// TeleChat3: a head of its own.
pub(super) fn read_telechat3(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?);
    blueprint(cfg, &dims, attention, "mlp_bias")
}

fn blueprint(cfg: &Config, dims: &Dims, attention: Attention, bias: &str) -> Result<Blueprint, ConfigError> {
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or(bias, false)?);
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    let rewrites = vec![drop("**.rotary_emb.inv_freq"), drop("model.mtp_layers.**")];
    Ok(Blueprint { rewrites, ..Blueprint::uniform(dims, layer) })
}
