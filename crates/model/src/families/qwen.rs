//! Qwen 1: Llama under GPT-2's names, with a bias on queries, keys and values.
//!
//! Source: mlx-lm `models/qwen.py`.

use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields { norm_eps: "layer_norm_epsilon", ..DimFields::LLAMA };
    let dims = Dims { head: Head::Own, ..Dims::read_as(cfg, &fields)? };
    let bias = !cfg.or("no_bias", true)?;
    cfg.only("kv_channels", dims.head_dim)?;
    let attention = Attention {
        qkv_bias: true,
        out_bias: bias,
        ..Attention::new(&dims, Position::Rope(Rope::new(dims.head_dim, 10_000.0)))
    };
    let width = cfg.req::<usize>("intermediate_size")? / 2;
    let mlp = GatedMlp { width, act: Activation::Silu, bias };
    let rewrites = [
        gpt2_names(),
        parts_of_layers([("mlp.w1", "mlp.up_proj"), ("mlp.w2", "mlp.gate_proj")]),
        vec![split_qkv("model.layers.*.self_attn.qkv_proj", &attention)],
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint { head_bias: bias, rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
