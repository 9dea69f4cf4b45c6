//! Mamba-2: a convolution, a recurrence whose state decays head by head, a gated norm.
//!
//! Source: arXiv 2405.21060.

mod cache;
mod footprint;
mod forward;
mod spec;
mod tensors;

pub(super) use forward::Mamba2Block;
pub use spec::Mamba2;
