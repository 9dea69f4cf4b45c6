//! MLPs: how each position is transformed on its own. One file per kind (and for activations and routers) with its spec and
//! rules, tensors and scratch memory; its forward pass is in a file below it.
//!
//! To add one: a file, a variant of [`Mlp`], a row in [`Mlp::spec`] and in [`Mlp::load`].
//!
//! Invariant: specs are plain data and know neither weights nor operations; only `forward` and `load` do.

mod activation;
mod gated;
mod linear;
mod load;
mod moe;
mod plain;
mod router;

use crate::spec::{Footprint, Rules, Tensors};
pub use activation::Activation;
pub use gated::GatedMlp;
pub use linear::LinearMlp;
pub use moe::{Expert, Moe, SharedExpert, SharedGate};
pub use plain::PlainMlp;
pub use router::{RouteGroups, RouteScores, Router, Weighs};

/// How each position is transformed on its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Mlp {
    /// `down(act(gate(x)) · up(x))`
    Gated(GatedMlp),
    /// `down(act(up(x)))`
    Plain(PlainMlp),
    /// `linear(x)`
    Linear(LinearMlp),
    /// A few of many MLPs, chosen per token.
    Moe(Moe),
}

impl From<GatedMlp> for Mlp {
    fn from(spec: GatedMlp) -> Self {
        Self::Gated(spec)
    }
}

impl From<PlainMlp> for Mlp {
    fn from(spec: PlainMlp) -> Self {
        Self::Plain(spec)
    }
}

impl From<LinearMlp> for Mlp {
    fn from(spec: LinearMlp) -> Self {
        Self::Linear(spec)
    }
}

impl From<Moe> for Mlp {
    fn from(spec: Moe) -> Self {
        Self::Moe(spec)
    }
}

impl Mlp {
    /// What its kind says of itself.
    pub(crate) fn spec(&self) -> &dyn MlpSpec {
        match self {
            Self::Gated(spec) => spec,
            Self::Plain(spec) => spec,
            Self::Linear(spec) => spec,
            Self::Moe(spec) => spec,
        }
    }
}

/// What one kind of MLP says of itself.
pub(crate) trait MlpSpec: Rules + Tensors + Footprint {}

impl<T: Rules + Tensors + Footprint> MlpSpec for T {}
