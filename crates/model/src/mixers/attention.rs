//! Softmax attention over grouped heads, with keys and values in blocks.

mod cache;
mod footprint;
mod forward;
mod spec;
mod tensors;

pub(super) use forward::AttentionBlock;
pub use spec::{Attention, AttentionSpan, QkNorm};
