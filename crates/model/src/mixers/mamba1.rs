//! Mamba: a convolution, a recurrence in which each channel has a state of its own.
//!
//! Source: arXiv 2312.00752 §3.

mod forward;
mod spec;

pub(super) use forward::Mamba1Block;
pub use spec::{Mamba1, StepNorms};
