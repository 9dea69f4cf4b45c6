//! MLPs: how each position is transformed on its own. One file per kind (and for routers) with its spec and rules, tensors
//! and scratch memory; its forward pass is in a file below it.
//!
//! To add one: a file, a variant of [`Mlp`], a row in [`Mlp::spec`] and in [`Mlp::load`].
//!
//! Invariant: specs are plain data and know neither weights nor operations; only `forward` and `load` do.

mod gated;
mod load;
mod moe;
mod router;

use crate::spec::{Footprint, Rules, Tensors};
pub use gated::{Activation, GatedMlp};
pub use moe::{Moe, SharedExpert};
pub use router::Router;

/// How each position is transformed on its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Mlp {
    /// `down(act(gate(x)) · up(x))`
    Gated(GatedMlp),
    /// A few of many gated MLPs, chosen per token.
    Moe(Moe),
}

impl Mlp {
    /// What its kind says of itself.
    pub(crate) fn spec(&self) -> &dyn MlpSpec {
        match self {
            Self::Gated(spec) => spec,
            Self::Moe(spec) => spec,
        }
    }
}

/// What one kind of MLP says of itself.
pub(crate) trait MlpSpec: Rules + Tensors + Footprint {}

impl<T: Rules + Tensors + Footprint> MlpSpec for T {}
