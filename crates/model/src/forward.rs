//! What all layers of one forward pass share: positions, block tables, masks and state slots, made once per pass.
//!
//! Invariant: knows the batch and the KV cache, no weights and no layer's formula. Blocks read it, the decoder makes it.

mod attention;
mod context;
mod kv_path;
mod row_split;
mod rows;
mod state;

pub(crate) use attention::{AttentionMetadata, Gather};
pub(crate) use context::{ForwardContext, SequenceLengths};
pub use kv_path::KvPath;
pub(crate) use rows::Rows;
pub(crate) use state::StateMetadata;
