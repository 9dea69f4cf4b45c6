//! Softmax attention over grouped heads, with keys and values in blocks.

mod cache;
mod distance;
mod distance_block;
mod footprint;
mod forward;
mod gate;
mod normed;
mod prepare;
mod qk_norm;
mod spec;
mod tensors;

pub use distance::{DistanceBuckets, DistanceScores, DistanceTerm};
use distance_block::DistanceBlock;
pub(super) use forward::AttentionBlock;
pub(super) use gate::GateBlock;
pub(super) use prepare::CallSpec;
pub use qk_norm::{NormAt, NormOver, QkNorm};
pub use spec::{
    Attention, AttentionSpan, Bidirectional, BlockSparse, HeadGate, KeySource, OutNorm, OutputGate,
    Temperature,
};
