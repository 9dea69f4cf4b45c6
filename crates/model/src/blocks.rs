//! The computations of layers. Each block owns its weights and computes one formula.
//!
//! Invariant: all but the mixers treat rows independently, so decode rows, prefill chunks and
//! padding share every matmul.

mod attention;
mod conv;
mod gated;
mod gated_delta;
mod linear;
mod mamba2;
mod mixer;
mod mlp;
mod moe;
mod norm;
mod rotary;

pub(crate) use linear::{Embedding, Fused, Linear, SwitchLinear};
pub(crate) use mixer::MixerBlock;
pub(crate) use mlp::MlpBlock;
pub(crate) use norm::{ResidualStream, RmsNorm};
