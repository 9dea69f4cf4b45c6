//! Building blocks of layers: linear layers, norms, and the residual stream. A block owns its weights and the operations
//! that compute with them.
//!
//! Invariant: rows are independent here and in `mlps`, so decode rows, prefill chunks and padding share every matmul.

mod linear;
mod norm;

pub(crate) use linear::{Embedding, ExpertLinear, Fused, Linear};
pub(crate) use norm::{NormBlock, ResidualStream};
