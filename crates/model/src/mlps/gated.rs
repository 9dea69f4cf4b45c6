//! A gated MLP: `down(act(gate(x)) · up(x))`.

mod forward;

use crate::Activation;
use crate::manifest::Scope;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
pub(super) use forward::GatedBlock;

/// A gated MLP.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct GatedMlp {
    pub width: usize,
    pub act: Activation,
    pub bias: bool,
}

impl GatedMlp {
    /// One without biases.
    pub fn new(width: usize, act: Activation) -> Self {
        Self { width, act, bias: false }
    }

    /// This activation at another width.
    pub fn with_width(self, width: usize) -> Self {
        Self { width, ..self }
    }
}

impl Rules for GatedMlp {
    fn check_rules(&self, broken: &mut Broken) {
        broken.size(&[("intermediate_size", self.width)]);
    }
}

impl Tensors for GatedMlp {
    fn name_tensors(&self, at: &mut Scope) {
        at.column("gate_proj", at.hidden, self.width, self.bias);
        at.column("up_proj", at.hidden, self.width, self.bias);
        at.row("down_proj", self.width, at.hidden, self.bias);
    }
}

impl Footprint for GatedMlp {
    fn row_elements(&self, hidden: usize) -> usize {
        3 * self.width + hidden
    }
}
