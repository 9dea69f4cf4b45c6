//! An MLP without a gate: `down(act(up(x)))`.

mod forward;

use crate::Activation;
use crate::manifest::{Scope, TensorRole};
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
pub(super) use forward::PlainBlock;

/// An MLP without a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct PlainMlp {
    pub width: usize,
    pub act: Activation,
    pub bias: bool,
}

impl Rules for PlainMlp {
    fn check_rules(&self, broken: &mut Broken) {
        broken.size(&[("intermediate_size", self.width)]);
    }
}

impl Tensors for PlainMlp {
    fn name_tensors(&self, at: &mut Scope) {
        at.column("up_proj", at.hidden, self.width, self.bias);
        at.row("down_proj", self.width, at.hidden, self.bias);
        if self.act == Activation::Xielu {
            for name in forward::XIELU {
                at.tensor(&format!("act_fn.{name}"), &[], TensorRole::Replicated);
            }
        }
    }
}

impl Footprint for PlainMlp {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * self.width + hidden
    }
}
