//! Jina Embeddings 3: XLM-RoBERTa with rotated queries and keys. Adapters of tasks are not read.
//!
//! Source: transformers `models/jina_embeddings_v3`; arXiv 2409.10173.

use super::encoder::*;
use super::names::*;
use super::parts::rope;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = dims(cfg, &BERT_FIELDS)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(true);
    let act = cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act, bias: true };
    let types: usize = cfg.or("type_vocab_size", 1)?;
    let split = split_qkv("model.layers.*.self_attn.qkv_proj", &attention);
    Ok(Blueprint {
        token_types: Some(types).filter(|types| *types > 0),
        rewrites: [rewrites(), vec![split]].concat(),
        ..of_sums(&dims, LayerSpec::pre_norm(attention, mlp, dims.norm))
    })
}

fn rewrites() -> Vec<WeightRewrite> {
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.token_type_embeddings", "model.embed_token_types"),
        ("emb_ln", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("mixer.Wqkv", "self_attn.qkv_proj"),
        ("mixer.out_proj", "self_attn.o_proj"),
        ("norm1", "post_attention_layernorm"),
        ("mlp.fc1", "mlp.up_proj"),
        ("mlp.fc2", "mlp.down_proj"),
        ("norm2", "post_feedforward_layernorm"),
    ]);
    [vec![drop("pooler.**")], around, vec![prefix("encoder.layers", "model.layers")], parts].concat()
}
