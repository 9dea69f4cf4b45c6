//! Nomic Embed: BERT with rotated queries and keys and a gated MLP.
//!
//! Source: `modeling_hf_nomic_bert.py` of nomic-ai/nomic-bert-2048; arXiv 2402.01613.

use super::encoder::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    for off in ["prenorm", "parallel_block", "use_rms_norm", "causal"] {
        cfg.only(off, false)?;
    }
    for absent in ["rotary_emb_scale_base", "rotary_scaling_factor"] {
        cfg.only(absent, serde_json::Value::Null)?;
    }
    cfg.only("rotary_emb_fraction", 1.0)?;
    cfg.pass_by(&["max_trained_positions", "pad_vocab_size_multiple"]);
    let fields = DimFields { norm_eps: "layer_norm_epsilon", ..DimFields::GPT2 };
    let dims = dims(cfg, &fields)?;
    let mut rope = Rope::new(dims.head_dim, cfg.or("rotary_emb_base", 10_000.0)?);
    if cfg.or("rotary_emb_interleaved", false)? {
        rope.pairs = RotaryPairing::Interleaved;
    }
    let bias = cfg.or("qkv_proj_bias", true)?;
    let attention = Attention::new(&dims, Position::Rope(rope)).with_bias(bias);
    let (width, bias) = (cfg.req("n_inner")?, cfg.or("mlp_fc1_bias", true)?);
    cfg.only("mlp_fc2_bias", bias)?;
    let mlp: Mlp = match cfg.choice("activation_function", MLPS)? {
        (act, MlpKind::Gated) => GatedMlp { width, act, bias }.into(),
        (act, MlpKind::Plain) => PlainMlp { width, act, bias }.into(),
    };
    let types: usize = cfg.or("type_vocab_size", 0)?;
    let split = split_qkv("model.layers.*.self_attn.qkv_proj", &attention);
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    Ok(Blueprint {
        token_types: Some(types).filter(|types| *types > 0),
        rewrites: [rewrites(), vec![split]].concat(),
        ..of_sums(&dims, layer)
    })
}

#[derive(Clone, Copy)]
enum MlpKind {
    Gated,
    Plain,
}

const MLPS: &[(&str, (Activation, MlpKind))] = &[
    ("swiglu", (Activation::Silu, MlpKind::Gated)),
    ("geglu", (Activation::Gelu, MlpKind::Gated)),
    ("gelu", (Activation::Gelu, MlpKind::Plain)),
    ("relu", (Activation::Relu, MlpKind::Plain)),
];

fn rewrites() -> Vec<WeightRewrite> {
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.token_type_embeddings", "model.embed_token_types"),
        ("emb_ln", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attn.Wqkv", "self_attn.qkv_proj"),
        ("attn.out_proj", "self_attn.o_proj"),
        ("norm1", "post_attention_layernorm"),
        ("mlp.fc11", "mlp.up_proj"),
        ("mlp.fc12", "mlp.gate_proj"),
        ("mlp.fc1", "mlp.up_proj"),
        ("mlp.fc2", "mlp.down_proj"),
        ("norm2", "post_feedforward_layernorm"),
    ]);
    [around, vec![prefix("encoder.layers", "model.layers"), drop("pooler.**")], parts].concat()
}
