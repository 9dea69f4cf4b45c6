//! Lille 130M: Llama with one projection for queries, keys and values, and neighbours that rotate together.
//!
//! Source: mlx-lm `models/lille-130m.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields {
        kv_heads: "n_kv_heads",
        context: "block_size",
        norm_eps: "layer_norm_eps",
        ..DimFields::GPT2
    };
    let dims = Dims { head: Head::Tied, ..Dims::read_as(cfg, &fields)? };
    let attention = Attention::new(&dims, interleaved_rope(cfg, &dims)?);
    let width = (8 * dims.hidden / 3 + 128) / 256 * 256;
    let mlp = GatedMlp { width, act: Activation::Silu, bias: false };
    let rewrites = [
        vec![prefix("transformer", "model"), drop("**.rotary_emb.**")],
        modules([("model.tok_embeddings", "model.embed_tokens")]),
        parts_of_layers([
            ("attention.norm", "input_layernorm"),
            ("attention.qkv_proj", "self_attn.qkv_proj"),
            ("attention.out_proj", "self_attn.o_proj"),
            ("feed_forward.norm", "post_attention_layernorm"),
            ("feed_forward.*", "mlp.*"),
        ]),
        vec![split_qkv("model.layers.*.self_attn.qkv_proj", &attention)],
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
