//! Decoders that were trained on as encoders: EuroBERT and Llama's bidirectional form.
//!
//! Source: transformers `models/eurobert`; `llama_bidirectional_model.py` of nvidia/llama-nemotron-embed.

use super::encoder::*;
use crate::*;

/// How texts were scaled and pooled in training is in files beside the config.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.pass_by(&["classifier_pooling", "pooling", "temperature", "tie_word_embeddings"]);
    Ok(encoder(super::llama::read(cfg)?))
}
