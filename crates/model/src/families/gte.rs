//! GTE: BERT with rotated queries and keys and a gated MLP (gte-multilingual, Snowflake Arctic Embed 2).
//!
//! Source: `modeling.py` of Alibaba-NLP/new-impl; arXiv 2407.19669.

use super::encoder::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("position_embedding_type", "rope")?;
    cfg.only("layer_norm_type", "layer_norm")?;
    cfg.only("pack_qkv", true)?;
    for off in ["logn_attention_scale", "logn_attention_clip1"] {
        cfg.only(off, false)?;
    }
    cfg.pass_by(&["unpad_inputs", "use_memory_efficient_attention"]);
    let dims = dims(cfg, &BERT_FIELDS)?;
    let attention = Attention::new(&dims, Position::Rope(rope(cfg, &dims)?)).with_bias(true);
    let act = cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let width = cfg.req("intermediate_size")?;
    let types: usize = cfg.or("type_vocab_size", 1)?;
    let split_mlp = split("model.layers.*.mlp.up_gate_proj", &[("up_proj", width), ("gate_proj", width)]);
    let names = rewrites(split_qkv("model.layers.*.self_attn.qkv_proj", &attention), split_mlp);
    // The projection down alone has a bias.
    let layer = LayerSpec::pre_norm(attention, GatedMlp { width, act, bias: true }, dims.norm);
    Ok(Blueprint {
        token_types: Some(types).filter(|types| *types > 0),
        rewrites: names,
        ..of_sums(&dims, layer)
    })
}

/// `ntk` scaling raises the base and slows all pairs.
fn rope(cfg: &Config, dims: &Dims) -> Result<Rope, ConfigError> {
    let base: f32 = cfg.or("rope_theta", 10_000.0)?;
    let Some(scaling) = cfg.section("rope_scaling")? else { return Ok(Rope::new(dims.head_dim, base)) };
    scaling.only("type", "ntk")?;
    let factor: f32 = scaling.req("factor")?;
    let slowed = factor.powf(2.0 / dims.head_dim as f32);
    Ok(Rope { scaling: Scaling::Linear { factor: slowed }, ..Rope::new(dims.head_dim, base * factor) })
}

fn rewrites(split_attention: WeightRewrite, split_mlp: WeightRewrite) -> Vec<WeightRewrite> {
    let classes = ["new", "gte"];
    let unprefixed = classes
        .into_iter()
        .flat_map(|class| ["embeddings", "encoder"].map(|part| prefix(&format!("{class}.{part}"), part)));
    let heads = ["pooler", "new.pooler", "gte.pooler", "classifier", "lm_head"];
    let heads = heads.into_iter().map(|head| drop(&format!("{head}.**")));
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.token_type_embeddings", "model.embed_token_types"),
        ("embeddings.LayerNorm", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attention.qkv_proj", "self_attn.qkv_proj"),
        ("attention.o_proj", "self_attn.o_proj"),
        ("attn_ln", "post_attention_layernorm"),
        ("mlp_ln", "post_feedforward_layernorm"),
    ]);
    // Of the MLP's projections, the last alone has a bias.
    let biases = ["gate_proj", "up_proj"].map(|name| WeightRewrite::ZeroBias {
        weights: format!("model.layers.*.mlp.{name}.weight").into(),
        bias: format!("model.layers.*.mlp.{name}.bias").into(),
    });
    let first = unprefixed.chain(heads).collect();
    let named = [first, around, vec![prefix("encoder.layer", "model.layers")], parts].concat();
    [named, vec![split_attention, split_mlp], biases.to_vec()].concat()
}
