//! From `config.json` and tensors to logits.
//!
//! ```text
//! config.json ──families──> Blueprint ──manifest──> the tensors it needs
//! checkpoint  ──rewrite───> those tensors ──Model::build──> Model
//! Model::forward(Batch, &mut KvCache) -> logits
//! ```
//!
//! Start at [`families::read`] for what a model is and at [`Model::forward`] for what it does.
//!
//! Invariant: knows no requests, no clock, no HTTP. A family is data; only `blocks` and `decoder` compute, and neither
//! branches on a family.

mod batch;
mod blocks;
mod blueprint;
mod config;
mod decoder;
mod dims;
mod error;
pub mod families;
mod footprint;
mod forward;
mod kernels;
mod kv_cache;
mod kv_format;
mod manifest;
mod pattern;
mod prompt_cache;
mod quantization;
mod rewrite;
mod rope;
mod validate;
pub mod weights;

pub use batch::{Batch, Segment};
pub use blueprint::{
    Activation, Attention, AttentionSpan, Blueprint, GatedDelta, GatedMlp, Head, LayerSpec, Mamba2, Mixer,
    Mlp, Moe, Names, Norm, NormPlacement, QkNorm, Routing, SharedExpert,
};
pub use config::{Config, ConfigError, IGNORABLE, Limit};
pub use decoder::{Model, RowLogits};
pub use dims::Dims;
pub use error::Error;
pub use forward::KvPath;
pub use kernels::Kernels;
pub use kv_cache::{BlockExport, KvCache, KvCacheGroup, VisibleTo};
pub use kv_format::{KvStorage, UnquantizedPrefix};
pub use manifest::Manifest;
pub use pattern::{Captures, Pattern};
pub use prompt_cache::{BlockImport, PromptCache};
pub use quantization::{Quantization, QuantizationChoice};
pub use rewrite::WeightRewrite;
pub use rope::{Position, Rope, RotaryPairing, Scaling};
pub use weights::{LoadError, Source, Weights};
