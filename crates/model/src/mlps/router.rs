//! Routers: which experts compute a token, and with which weights. Its spec, tensors and scratch memory; its forward pass
//! is in a file below it.

mod forward;

use crate::manifest::Scope;
pub(super) use forward::RouterBlock;

/// From router logits to experts and their weights: softmax over all experts in float32, the best `top_k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Router {
    /// The probabilities as they are.
    Softmax,
    /// Divided by their sum over the chosen experts.
    SoftmaxRenormalized,
}

impl Router {
    /// Names the tensors of a router over this many experts.
    pub(super) fn name_tensors(self, at: &mut Scope, experts: usize) {
        at.linear("gate", at.hidden, experts, false);
    }

    /// Elements of one row's intermediate results: logits and probabilities.
    pub(super) fn row_elements(self, experts: usize) -> usize {
        2 * experts
    }
}
