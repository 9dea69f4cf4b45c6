//! The computations layers are made of. Each block owns its weights and knows one formula.
//!
//! Invariant: all but the mixers treat rows independently, so decode rows, prefill chunks and
//! padding share every matmul.

mod attention;
mod kernels;
mod linear;
mod mlp;
mod moe;
mod norm;
pub(crate) mod rotate;

pub(crate) use attention::AttentionBlock;
pub use kernels::Kernels;
pub(crate) use linear::{Embedding, Fused, Linear, SwitchLinear};
pub(crate) use mlp::MlpBlock;
pub(crate) use norm::{RmsNorm, Stream};
