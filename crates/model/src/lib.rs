//! From `config.json` and tensors to logits.
//!
//! ```text
//! config.json ──families──> Blueprint ──manifest──> the tensors it wants
//! checkpoint  ──rewrite───> those tensors ──Model::build──> Model
//! Model::forward(Batch, &mut KvState) -> logits
//! ```
//!
//! Start at [`families::read`] for what a model is and at [`Model::forward`] for what it does.
//!
//! Invariant: knows no requests, no clock, no HTTP. A family is data; only `blocks` and `decoder`
//! do arithmetic, and no family has a branch in either.

mod batch;
mod blocks;
mod blueprint;
mod config;
mod decoder;
mod dims;
mod error;
pub mod families;
mod footprint;
mod kv_format;
mod manifest;
mod pattern;
mod prompt_cache;
mod quantization;
mod rewrite;
mod rope;
mod state;
mod validate;
pub mod weights;

pub use batch::{Batch, Segment, Table};
pub use blocks::Kernels;
pub use blueprint::{
    Act, Attention, Blueprint, Gated, GatedDelta, Head, LayerSpec, Mamba2, Mixer, Mlp, Moe, Names, Norm,
    QkNorm, Reach, Routing, Shared, Wiring,
};
pub use config::{Config, ConfigError, IGNORABLE};
pub use decoder::{Attending, Model, RowLogits};
pub use dims::Dims;
pub use error::Error;
pub use kv_format::{KvFormat, KvStorage, Opening};
pub use manifest::Manifest;
pub use pattern::{Captures, Pattern};
pub use prompt_cache::{Placed, PromptCache};
pub use quantization::{Quantization, QuantizationChoice};
pub use rewrite::WeightRewrite;
pub use rope::{Pairs, Position, Rope, Scaling};
pub use state::{GroupKind, KvState, Outgoing, Seen, StateGroup};
pub use weights::{LoadError, Source, Weights};
