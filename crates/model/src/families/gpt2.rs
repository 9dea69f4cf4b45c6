//! GPT-2 and StarCoder (`gpt_bigcode`): layer norms, learned positions, an ungated MLP.
//!
//! Source: mlx-lm `models/gpt2.py`, `models/gpt_bigcode.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Tied, ..Dims::read_as(cfg, &DimFields::GPT2)? };
    let width = cfg.or("n_inner", 4 * dims.hidden)?;
    let mlp = PlainMlp { width, act: Activation::GeluTanh, bias: true };
    // Published matrices are stored inputs first, and have no prefix.
    let stored = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"];
    let stored =
        stored.map(|name| WeightRewrite::Transposed { tensors: format!("h.*.{name}.weight").into() });
    let published = [
        stored.to_vec(),
        vec![drop("h.*.attn.bias"), drop("h.*.attn.masked_bias"), prefix("h", "model.h")],
        modules([("wte", "model.wte"), ("wpe", "model.wpe"), ("ln_f", "model.ln_f")]),
        vec![prefix("model", "transformer")],
    ];
    blueprint(cfg, dims, mlp, published.concat())
}

pub(super) fn read_bigcode(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_as(cfg, &DimFields::GPT2)?;
    let kv_heads = if cfg.or("multi_query", true)? { 1 } else { dims.heads };
    let width = cfg.or("n_inner", 4 * dims.hidden)?;
    let mlp = PlainMlp { width, act: Activation::Gelu, bias: cfg.or("mlp_bias", true)? };
    let dropped = vec![drop("transformer.h.*.attn.bias"), drop("transformer.h.*.attn.masked_bias")];
    blueprint(cfg, Dims { kv_heads, ..dims }, mlp, dropped)
}

fn blueprint(
    cfg: &Config,
    dims: Dims,
    mlp: PlainMlp,
    published: Vec<WeightRewrite>,
) -> Result<Blueprint, ConfigError> {
    let dims = dims.with_layer_norm(dims.norm.eps(), true);
    let attention = Attention::new(&dims, Position::None).with_bias(cfg.or("attention_bias", true)?);
    let rewrites = [
        published,
        modules([("transformer.wpe", "model.embed_positions")]),
        gpt2_names(),
        parts_of_layers([("mlp.c_fc", "mlp.up_proj")]),
        vec![split_qkv("model.layers.*.self_attn.qkv_proj", &attention)],
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint {
        learned_positions: Some(LearnedPositions::new(dims.context)),
        rewrites: rewrites.concat(),
        ..Blueprint::uniform(&dims, layer)
    })
}
