//! InternLM 2 (one grouped projection for queries, keys and values) and 3: Llama with dynamic NTK scaling.
//!
//! Source: mlx-lm `models/internlm2.py`, `models/internlm3.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("bias", true)?);
    let qkv = "model.layers.*.self_attn.qkv_proj";
    let rewrites = [
        vec![drop("**.rope.inv_freq")],
        modules([("output", "lm_head"), ("model.tok_embeddings", "model.embed_tokens")]),
        parts_of_layers([
            ("attention_norm", "input_layernorm"),
            ("ffn_norm", "post_attention_layernorm"),
            ("attention.wqkv", "self_attn.qkv_proj"),
            ("attention.wo", "self_attn.o_proj"),
            ("feed_forward.w1", "mlp.gate_proj"),
            ("feed_forward.w2", "mlp.down_proj"),
            ("feed_forward.w3", "mlp.up_proj"),
        ]),
        vec![ungrouped(qkv, &attention), split_qkv(qkv, &attention)],
    ];
    let layer = LayerSpec::pre_norm(attention, GatedMlp::read(cfg)?, dims.norm);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}

pub(super) fn read_internlm3(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("qkv_bias", false)?);
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("bias", false)?);
    Ok(Blueprint::uniform(&dims, LayerSpec::pre_norm(attention, mlp, dims.norm)))
}
