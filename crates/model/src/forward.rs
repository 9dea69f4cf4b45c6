//! What all layers of one forward pass share: positions, block tables, masks and state slots, made once per pass.
//!
//! Invariant: knows the batch and the KV cache, no weights and no layer's formula. Blocks read it, the decoder makes it.

mod attention;
mod axes;
mod context;
mod gather;
mod items;
mod kv_path;
mod row_split;
mod rows;
mod short_chunks;
mod state;

pub(crate) use attention::{AttentionReads, GatheredRows, SegmentTables};
pub(crate) use context::{ForwardContext, KeyChoice, LogitRows, SequenceLengths};
pub(crate) use gather::Gather;
pub(crate) use items::{Items, Numbers};
pub use kv_path::KvPath;
pub(crate) use kv_path::{AttentionPath, StatePath};
pub(crate) use rows::Rows;
pub(crate) use state::{DeviceRuns, Run, StateMetadata};
