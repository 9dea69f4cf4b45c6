//! A gated MLP: `down(act(gate(x)) · up(x))`.

use mlx::Array;

use super::{MlpBlock, MlpSpec};
use crate::LoadError;
use crate::blocks::{Fused, Linear};
use crate::manifest::Scope;
use crate::ops::Ops;
use crate::validate::Broken;
use crate::weights::Store;

/// A gated MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct GatedMlp {
    pub width: usize,
    pub act: Activation,
    pub bias: bool,
}

/// The non-linearity of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
}

impl Activation {
    /// As Hugging Face spells them.
    pub const CHOICES: &[(&str, Self)] =
        &[("silu", Self::Silu), ("gelu", Self::Gelu), ("gelu_pytorch_tanh", Self::GeluTanh)];
}

impl GatedMlp {
    /// The same activation at another width.
    pub fn with_width(self, width: usize) -> Self {
        Self { width, ..self }
    }
}

impl MlpSpec for GatedMlp {
    fn check(&self, broken: &mut Broken) {
        broken.size(&[("intermediate_size", self.width)]);
    }

    fn tensors(&self, at: &mut Scope) {
        at.linear("gate_proj", at.hidden, self.width, self.bias);
        at.linear("up_proj", at.hidden, self.width, self.bias);
        at.linear("down_proj", self.width, at.hidden, self.bias);
    }

    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MlpBlock>, LoadError> {
        Ok(Box::new(GatedBlock::load(self, store, path)?))
    }

    fn row_elements(&self, hidden: usize) -> usize {
        3 * self.width + hidden
    }
}

/// A gated MLP with its two input projections merged.
pub(super) struct GatedBlock {
    ops: &'static dyn Ops,
    gate_up: Fused,
    down: Linear,
    act: Activation,
}

impl GatedBlock {
    pub(super) fn load(spec: &GatedMlp, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let gate = store.linear(&format!("{path}.gate_proj"))?;
        let up = store.linear(&format!("{path}.up_proj"))?;
        let down = store.linear(&format!("{path}.down_proj"))?;
        Ok(Self { ops: store.ops(), gate_up: Fused::new(vec![gate, up])?, down, act: spec.act })
    }
}

impl MlpBlock for GatedBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        self.down.forward(&self.ops.gated_act(&self.gate_up.forward(x)?, self.act)?)
    }

    fn arrays(&self) -> Vec<&Array> {
        self.gate_up.arrays().into_iter().chain(self.down.arrays()).collect()
    }
}
