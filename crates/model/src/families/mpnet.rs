//! MPNet: BERT without token types, whose heads add a learned number for each distance to scores.
//!
//! Source: transformers `models/mpnet`; arXiv 2004.09297.

use super::encoder::*;
use super::names::*;
use crate::*;

/// Behind `<pad>`, whatever the config calls it.
const FIRST_POSITION: usize = 2;

/// Distances from this on share a bucket.
const LONGEST: usize = 128;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("pad_token_id", 1)?;
    let dims = dims(cfg, &BERT_FIELDS)?;
    let rows = dims.context;
    let dims = Dims { context: rows.saturating_sub(FIRST_POSITION), ..dims };
    let buckets =
        DistanceBuckets::Halves { count: cfg.or("relative_attention_num_buckets", 32)?, longest: LONGEST };
    let distances = DistanceScores { term: DistanceTerm::Bias, buckets };
    let attention = Attention { distances: Some(distances), ..Attention::new(&dims, Position::None) };
    let act = cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act, bias: true };
    Ok(Blueprint {
        learned_positions: Some(LearnedPositions { rows, first: FIRST_POSITION }),
        rewrites: rewrites(dims.layers),
        ..of_sums(&dims, LayerSpec::pre_norm(attention.with_bias(true), mlp, dims.norm))
    })
}

fn rewrites(layers: usize) -> Vec<WeightRewrite> {
    let unprefixed = ["embeddings", "encoder"].map(|part| prefix(&format!("mpnet.{part}"), part));
    let heads = ["pooler", "mpnet.pooler", "lm_head", "classifier"];
    let dropped = heads.into_iter().map(|head| drop(&format!("{head}.**")));
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.position_embeddings", "model.embed_positions"),
        ("embeddings.LayerNorm", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attention.attn.q", "self_attn.q_proj"),
        ("attention.attn.k", "self_attn.k_proj"),
        ("attention.attn.v", "self_attn.v_proj"),
        ("attention.attn.o", "self_attn.o_proj"),
        ("attention.LayerNorm", "post_attention_layernorm"),
        ("intermediate.dense", "mlp.up_proj"),
        ("output.dense", "mlp.down_proj"),
        ("output.LayerNorm", "post_feedforward_layernorm"),
    ]);
    // `[buckets, heads]`, of all layers.
    let bias = "encoder.relative_attention_bias.weight";
    let shared = [
        WeightRewrite::Transposed { tensors: bias.into() },
        of_each_layer(bias, layers, "self_attn.distance_bias"),
    ];
    let first = dropped.chain(unprefixed).chain([drop("embeddings.position_ids")]).collect();
    [first, around, shared.to_vec(), vec![prefix("encoder.layer", "model.layers")], parts].concat()
}
