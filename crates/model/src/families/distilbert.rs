//! DistilBERT: BERT without token types, under names of its own.
//!
//! Source: transformers `models/distilbert`; arXiv 1910.01108.

use super::encoder::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.pass_by(&["sinusoidal_pos_embds", "tie_weights_"]);
    let fields = DimFields { hidden: "dim", layers: "n_layers", heads: "n_heads", ..BERT_FIELDS };
    let dims = dims(cfg, &fields)?;
    let act = cfg.choice_opt("activation", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let mlp = PlainMlp { width: cfg.req("hidden_dim")?, act, bias: true };
    let layer = LayerSpec::pre_norm(Attention::new(&dims, Position::None).with_bias(true), mlp, dims.norm);
    let masked_head = masked_head(cfg, dims.norm, act)?;
    Ok(Blueprint {
        learned_positions: Some(LearnedPositions::new(dims.context)),
        rewrites: rewrites(masked_head),
        masked_head,
        ..of_sums(&dims, layer)
    })
}

fn rewrites(masked_head: Option<MaskedHead>) -> Vec<WeightRewrite> {
    let heads = ["vocab_transform", "vocab_layer_norm", "vocab_projector", "pre_classifier", "classifier"];
    let dropped = heads.into_iter().map(|head| drop(&format!("{head}.**")));
    let unprefixed = ["embeddings", "transformer"].map(|part| prefix(&format!("distilbert.{part}"), part));
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.position_embeddings", "model.embed_positions"),
        ("embeddings.LayerNorm", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attention.q_lin", "self_attn.q_proj"),
        ("attention.k_lin", "self_attn.k_proj"),
        ("attention.v_lin", "self_attn.v_proj"),
        ("attention.out_lin", "self_attn.o_proj"),
        ("sa_layer_norm", "post_attention_layernorm"),
        ("ffn.lin1", "mlp.up_proj"),
        ("ffn.lin2", "mlp.down_proj"),
        ("output_layer_norm", "post_feedforward_layernorm"),
    ]);
    let of_head = ["vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"];
    let head = masked_head.map(|_| masked_head_names(of_head)).unwrap_or_default();
    let first = head.into_iter().chain(dropped).chain(unprefixed).chain([drop("embeddings.position_ids")]);
    [first.collect(), around, vec![prefix("transformer.layer", "model.layers")], parts].concat()
}
