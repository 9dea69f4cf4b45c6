//! MLPs: how each position is transformed on its own. One file per kind: its spec and rules, tensors, scratch memory and
//! forward pass.
//!
//! To add one: a file, a variant of [`Mlp`], a row in [`Mlp::spec`].

mod gated;
mod moe;
mod router;

use mlx::Array;

use crate::LoadError;
use crate::manifest::Scope;
use crate::validate::Broken;
use crate::weights::Store;
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
    /// The only place that matches on the kinds.
    pub(crate) fn spec(&self) -> &dyn MlpSpec {
        match self {
            Self::Gated(spec) => spec,
            Self::Moe(spec) => spec,
        }
    }
}

/// What one kind of MLP says of itself.
pub(crate) trait MlpSpec {
    /// Checks its rules.
    fn check(&self, broken: &mut Broken);

    /// Names its tensors.
    fn tensors(&self, at: &mut Scope);

    /// Takes its tensors, below `path`.
    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MlpBlock>, LoadError>;

    /// Elements of a row's intermediate results, with a residual stream of this width.
    fn row_elements(&self, hidden: usize) -> usize;
}

/// One layer's MLP with its weights.
pub(crate) trait MlpBlock {
    /// `[T, hidden]` → `[T, hidden]`.
    fn forward(&self, x: &Array) -> mlx::Result<Array>;

    fn arrays(&self) -> Vec<&Array>;
}
