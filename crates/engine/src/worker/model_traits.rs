//! What the loop needs to know of the loaded model.
//!
//! Invariant: plain values, made once when the model is loaded.

use omnibus_kv::KvCacheSpec;
use omnibus_model::SpanRule;
use serde::{Deserialize, Serialize};

/// What the loop needs to know of the loaded model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ModelTraits {
    /// Most steps in flight.
    pub(super) depth: usize,
    /// Whether positions of prompts with media are on three axes.
    pub(super) has_axis_positions: bool,
    /// Positions of a prompt whose tokens attend to each other in both directions.
    pub(super) spans: SpanRule,
    /// Whether a draft head reads the hidden states of its rows.
    pub(super) keeps_states: bool,
    /// Whether it has an encoder of media.
    pub(super) encodes: bool,
    pub(super) kv: KvLayout,
}

/// How the KV cache is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KvLayout {
    /// Tokens of a block.
    pub(super) block_size: usize,
    /// What each layer group caches.
    pub(super) specs: Vec<KvCacheSpec>,
    /// The group whose tables hold every position of a sequence, if there is one.
    pub(super) full_attention_group: Option<usize>,
    /// Bytes of a block of each group.
    pub(super) block_bytes: Vec<usize>,
    /// Types and shapes of all pools in words: blocks of equal words have the same format.
    pub(super) words: String,
}
