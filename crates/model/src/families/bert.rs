//! BERT, RoBERTa and XLM-RoBERTa: encoders with learned positions and token types.
//!
//! Source: transformers `models/bert`, `models/roberta`, `models/xlm_roberta`; arXiv 1810.04805, 1907.11692.

use super::encoder::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    blueprint(cfg, 0)
}

/// Positions begin behind the padding token's.
pub(super) fn read_roberta(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let padding: usize = cfg.or("pad_token_id", 1)?;
    blueprint(cfg, padding.saturating_add(1))
}

/// The first position of a text is `first` of the table.
fn blueprint(cfg: &Config, first: usize) -> Result<Blueprint, ConfigError> {
    cfg.only("position_embedding_type", "absolute")?;
    cfg.only("is_decoder", false)?;
    cfg.only("add_cross_attention", false)?;
    let dims = dims(cfg, &BERT_FIELDS)?;
    let rows = dims.context;
    let dims = Dims { context: rows.saturating_sub(first), ..dims };
    let act = cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act, bias: true };
    let layer = LayerSpec::pre_norm(Attention::new(&dims, Position::None).with_bias(true), mlp, dims.norm);
    let types: usize = cfg.or("type_vocab_size", 2)?;
    let masked_head = masked_head(cfg, dims.norm, act)?;
    Ok(Blueprint {
        learned_positions: Some(LearnedPositions { rows, first }),
        token_types: Some(types).filter(|types| *types > 0),
        rewrites: rewrites(masked_head),
        masked_head,
        ..of_sums(&dims, layer)
    })
}

/// A checkpoint of any of its classes has the same encoder below another name, or none.
fn rewrites(masked_head: Option<MaskedHead>) -> Vec<WeightRewrite> {
    let unprefixed = ["bert", "roberta"].into_iter().flat_map(|class| {
        [prefix(&format!("{class}.embeddings"), "embeddings"), prefix(&format!("{class}.encoder"), "encoder")]
    });
    let heads = ["pooler", "bert.pooler", "roberta.pooler", "cls", "lm_head", "classifier", "linear"];
    let dropped = heads.into_iter().map(|head| drop(&format!("{head}.**")));
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.position_embeddings", "model.embed_positions"),
        ("embeddings.token_type_embeddings", "model.embed_token_types"),
        ("embeddings.LayerNorm", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attention.self.query", "self_attn.q_proj"),
        ("attention.self.key", "self_attn.k_proj"),
        ("attention.self.value", "self_attn.v_proj"),
        ("attention.output.dense", "self_attn.o_proj"),
        ("attention.output.LayerNorm", "post_attention_layernorm"),
        ("intermediate.dense", "mlp.up_proj"),
        ("output.dense", "mlp.down_proj"),
        ("output.LayerNorm", "post_feedforward_layernorm"),
    ]);
    let of_bert = [
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder",
    ];
    let of_roberta = ["lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"];
    let heads = masked_head.map(|_| [of_bert, of_roberta].map(masked_head_names).concat());
    let first = heads
        .unwrap_or_default()
        .into_iter()
        .chain(dropped)
        .chain(unprefixed)
        .chain([drop("embeddings.position_ids")]);
    [first.collect(), around, vec![prefix("encoder.layer", "model.layers")], parts].concat()
}
