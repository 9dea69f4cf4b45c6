//! DeBERTa 2 and 3: BERT without positions, whose scores have products with embeddings of distances.
//!
//! Source: transformers `models/deberta_v2`; arXiv 2006.03654, 2111.09543.

use super::encoder::*;
use super::names::*;
use super::parts::missing;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.pass_by(&["pooler_hidden_size", "pooler_hidden_act", "pooler_dropout", "legacy"]);
    cfg.only("relative_attention", true)?;
    cfg.only("share_att_key", true)?;
    cfg.only("position_biased_input", false)?;
    cfg.only("norm_rel_ebd", "layer_norm")?;
    cfg.only("conv_kernel_size", 0)?;
    let dims = dims(cfg, &BERT_FIELDS)?;
    cfg.only("embedding_size", dims.hidden)?;
    check_terms(cfg)?;
    let distances = DistanceScores {
        term: DistanceTerm::Products { norm: dims.norm },
        buckets: DistanceBuckets::Centred {
            side: cfg.req("position_buckets")?,
            longest: longest(cfg)?.unwrap_or(dims.context),
        },
    };
    let attention = Attention::new(&dims, Position::None).with_bias(true);
    let attention = Attention {
        // Three products are added.
        scale: (3.0 * dims.head_dim as f32).powf(-0.5),
        distances: Some(distances),
        ..attention
    };
    let act = cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act, bias: true };
    let types: usize = cfg.or("type_vocab_size", 0)?;
    Ok(Blueprint {
        token_types: Some(types).filter(|types| *types > 0),
        rewrites: rewrites(dims.layers),
        ..of_sums(&dims, LayerSpec::pre_norm(attention, mlp, dims.norm))
    })
}

/// Both products with distances, named in a list or in one string.
fn check_terms(cfg: &Config) -> Result<(), ConfigError> {
    const FIELD: &str = "pos_att_type";
    let mut terms: Vec<String> = match cfg.opt::<Vec<String>>(FIELD) {
        Ok(terms) => terms.ok_or_else(|| missing(FIELD))?,
        Err(_) => cfg.req::<String>(FIELD)?.split('|').map(str::to_owned).collect(),
    };
    terms.sort_unstable();
    match terms.as_slice() {
        [first, second] if first == "c2p" && second == "p2c" => Ok(()),
        _ => Err(ConfigError::Unsupported {
            field: FIELD.to_owned(),
            found: terms.join("|"),
            supported: "c2p|p2c".to_owned(),
        }),
    }
}

/// Distances with buckets of their own; the context's length where the config has −1.
fn longest(cfg: &Config) -> Result<Option<usize>, ConfigError> {
    match cfg.opt::<f32>("max_relative_positions")? {
        Some(longest) if longest >= 1.0 => Ok(Some(longest as usize)),
        Some(_) | None => Ok(None),
    }
}

fn rewrites(layers: usize) -> Vec<WeightRewrite> {
    let unprefixed = ["embeddings", "encoder"].map(|part| prefix(&format!("deberta.{part}"), part));
    let heads = ["pooler", "classifier", "cls", "lm_predictions", "mask_predictions"];
    let dropped = heads.into_iter().map(|head| drop(&format!("{head}.**")));
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.token_type_embeddings", "model.embed_token_types"),
        ("embeddings.LayerNorm", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attention.self.query_proj", "self_attn.q_proj"),
        ("attention.self.key_proj", "self_attn.k_proj"),
        ("attention.self.value_proj", "self_attn.v_proj"),
        ("attention.output.dense", "self_attn.o_proj"),
        ("attention.output.LayerNorm", "post_attention_layernorm"),
        ("intermediate.dense", "mlp.up_proj"),
        ("output.dense", "mlp.down_proj"),
        ("output.LayerNorm", "post_feedforward_layernorm"),
    ]);
    let shared = [
        of_each_layer("encoder.rel_embeddings.*", layers, "self_attn.distance_embeddings.*"),
        of_each_layer("encoder.LayerNorm.*", layers, "self_attn.distance_norm.*"),
    ];
    let first = dropped.chain(unprefixed).chain([drop("embeddings.position_ids")]).collect();
    [first, around, shared.to_vec(), vec![prefix("encoder.layer", "model.layers")], parts].concat()
}
