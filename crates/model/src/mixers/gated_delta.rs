//! Gated DeltaNet: a convolution, a recurrence that overwrites what its key stored, a norm, a gate.
//!
//! Source: arXiv 2412.06464 §3.

mod cache;
mod footprint;
mod forward;
mod spec;
mod tensors;

pub(super) use forward::GatedDeltaBlock;
pub use spec::GatedDelta;
