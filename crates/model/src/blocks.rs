//! The computations layers are made of. Each block owns its weights and knows one formula.
//!
//! Invariant: all but the mixers treat rows independently, so decode rows, prefill chunks and
//! padding share every matmul.

mod attention;
mod conv;
mod gated_delta;
mod kernels;
mod linear;
mod mamba2;
mod mixer;
mod mlp;
mod moe;
mod norm;
pub(crate) mod rotate;

pub use kernels::Kernels;
pub(crate) use linear::{Embedding, Fused, Linear, SwitchLinear};
pub(crate) use mixer::MixerBlock;
pub(crate) use mlp::MlpBlock;
pub(crate) use norm::{RmsNorm, Stream};
