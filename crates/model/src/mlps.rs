//! MLPs: how each position is transformed on its own. One file per kind (and for activations and routers) with its spec and
//! rules, tensors and scratch memory; its forward pass is in a file below it.
//!
//! To add one: a file, a variant of [`Mlp`], a row in [`Mlp::spec`] and in [`Mlp::load`].
//!
//! Invariant: specs are plain data and know neither weights nor operations; only `forward` and `load` do.

mod activation;
mod dense_and_routed;
mod gated;
mod linear;
mod load;
mod moe;
mod normed;
mod plain;
mod router;

use crate::spec::{Footprint, Rules, Tensors};
pub use activation::ACTIVATIONS;
pub use dense_and_routed::DenseAndRouted;
pub use gated::GatedMlp;
pub use linear::LinearMlp;
pub use moe::{Expert, Latent, LatentNorms, Moe, SharedExpert, SharedGate};
pub use normed::NormedMlp;
pub use plain::PlainMlp;
pub use router::{ExpertChoice, ROUTE_SCORES, Router, Weighs};

/// How each position is transformed on its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Mlp {
    /// `down(act(gate(x)) · up(x))`
    Gated(GatedMlp),
    /// `down(act(up(x)))`
    Plain(PlainMlp),
    /// `linear(x)`
    Linear(LinearMlp),
    /// `down(norm(act(gate(x)) · up(x)))`
    Normed(NormedMlp),
    /// A few of many MLPs, chosen per token.
    Moe(Moe),
    /// A dense MLP and routed experts beside each other.
    DenseAndRouted(DenseAndRouted),
}

macro_rules! from_specs {
    ($($spec:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$spec> for Mlp {
            fn from(spec: $spec) -> Self {
                Self::$variant(spec)
            }
        }
    )+};
}

from_specs! {
    GatedMlp => Gated,
    PlainMlp => Plain,
    LinearMlp => Linear,
    NormedMlp => Normed,
    Moe => Moe,
    DenseAndRouted => DenseAndRouted,
}

impl Mlp {
    /// Its routed experts, if it has some.
    pub(crate) fn routed(&self) -> Option<&Moe> {
        match self {
            Self::Moe(moe) | Self::DenseAndRouted(DenseAndRouted { routed: moe, .. }) => Some(moe),
            Self::Gated(_) | Self::Plain(_) | Self::Linear(_) | Self::Normed(_) => None,
        }
    }

    /// What its kind says of itself.
    pub(crate) fn spec(&self) -> &dyn MlpSpec {
        match self {
            Self::Gated(spec) => spec,
            Self::Plain(spec) => spec,
            Self::Linear(spec) => spec,
            Self::Normed(spec) => spec,
            Self::Moe(spec) => spec,
            Self::DenseAndRouted(spec) => spec,
        }
    }
}

/// What one kind of MLP says of itself.
pub(crate) trait MlpSpec: Rules + Tensors + Footprint {}

impl<T: Rules + Tensors + Footprint> MlpSpec for T {}
