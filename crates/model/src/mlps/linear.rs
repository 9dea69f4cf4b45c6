//! One matrix in the place of an MLP: `linear(x)` (Nemotron-NAS).

use mlx::Array;

use crate::blocks::{Linear, MlpBlock};
use crate::manifest::Scope;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// One matrix in the place of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LinearMlp {
    pub bias: bool,
}

impl Rules for LinearMlp {
    fn check_rules(&self, _broken: &mut Broken) {}
}

impl Tensors for LinearMlp {
    fn name_tensors(&self, at: &mut Scope) {
        at.replicated("linear", at.hidden, at.hidden, self.bias);
    }
}

impl Footprint for LinearMlp {
    fn row_elements(&self, hidden: usize) -> usize {
        hidden
    }
}

/// The matrix.
pub(super) struct LinearBlock(Linear);

impl LinearBlock {
    pub(super) fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self(store.linear(&format!("{path}.linear"))?))
    }
}

impl MlpBlock for LinearBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        self.0.forward(x)
    }
}
