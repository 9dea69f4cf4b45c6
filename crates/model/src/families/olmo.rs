//! OLMo 1: layer norms without weights, one projection each for attention and for the MLP's two halves.
//!
//! Source: mlx-lm `models/olmo.py`.

use super::names::*;
use super::parts::*;
use crate::*;

/// Of every norm.
const EPS: f32 = 1e-5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields {
        hidden: "d_model",
        layers: "n_layers",
        heads: "n_heads",
        vocab: "embedding_size",
        context: "max_sequence_length",
        ..DimFields::LLAMA
    };
    let head = if cfg.or("weight_tying", false)? { Head::Tied } else { Head::Own };
    let norm = Norm::LayerUnweighted { eps: EPS };
    let dims = Dims { head, norm, ..Dims::read_as(cfg, &fields)? };
    let attention = Attention::new(&dims, rope(cfg, &dims)?);
    let width = cfg.or::<usize>("mlp_hidden_size", 4 * dims.hidden)? / 2;
    let mlp = GatedMlp { width, act: Activation::Silu, bias: false };
    let rewrites = [
        modules([("model.transformer.wte", "model.embed_tokens"), ("model.transformer.ff_out", "lm_head")]),
        vec![prefix("model.transformer.blocks", "model.layers")],
        parts_of_layers([
            ("att_proj", "self_attn.qkv_proj"),
            ("attn_out", "self_attn.o_proj"),
            ("ff_proj", "mlp.up_gate_proj"),
            ("ff_out", "mlp.down_proj"),
        ]),
        vec![
            split_qkv("model.layers.*.self_attn.qkv_proj", &attention),
            split("model.layers.*.mlp.up_gate_proj", &[("up_proj", width), ("gate_proj", width)]),
        ],
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, norm);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
