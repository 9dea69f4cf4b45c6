//! Static embeddings: a table of tokens' vectors and no layer (sentence-transformers' StaticEmbedding, Model2Vec).
//!
//! Source: sentence-transformers `sentence_transformer/modules/static_embedding.py`; model2vec `model.py`.

use super::names::*;
use crate::*;

/// Sizes that a config of sentence-transformers or Model2Vec leaves out are those of the table
/// ([`Source::config`](crate::Source::config)).
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.pass_by(&["tokenizer_name", "apply_pca", "apply_zipf", "sif_coefficient", "normalize", "seq_length"]);
    cfg.pass_by(&["embedding_dtype", "vocabulary_quantization", "pooling"]);
    let hidden = match cfg.opt("hidden_size")? {
        Some(hidden) => hidden,
        None => cfg.req("hidden_dim")?,
    };
    cfg.only("hidden_dim", hidden)?;
    let vocab = cfg.req("vocab_size")?;
    let dims = Dims {
        hidden,
        layers: 0,
        heads: 1,
        kv_heads: 1,
        head_dim: hidden,
        vocab,
        context: CONTEXT,
        norm: Norm::Absent,
        head: Head::Absent,
    };
    let table =
        |from: &str| WeightRewrite::Rename { from: from.into(), to: "model.embed_tokens.weight".into() };
    let buffers = drop("embedding.position_ids");
    Ok(Blueprint {
        rewrites: vec![buffers, table("embedding.weight"), table("embeddings")],
        ..Blueprint::new(&dims, Vec::new())
    })
}

/// Texts have no positions; longer ones would only take memory.
const CONTEXT: usize = 1 << 16;
