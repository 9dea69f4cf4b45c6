//! The delta rule with projections and convolutions of queries, keys and values apart: Kimi's delta attention and OLMo's.

mod forward;
mod spec;

pub(super) use forward::DeltaAttentionBlock;
pub use spec::{Decay, DeltaAttention, DeltaGate};
