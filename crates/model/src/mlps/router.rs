//! Routers: which experts compute a token, and with which weights. Its spec, tensors and scratch memory; its forward pass
//! is in a file below it.

mod forward;

use crate::manifest::{Scope, TensorRole};
use crate::rules::Broken;
use crate::{RouteGroups, RouteScores};
pub(super) use forward::RouterBlock;

/// From router logits to experts and their weights: a score for each expert in float32, the best `top_k`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Router {
    /// How experts are chosen.
    pub choice: ExpertChoice,
    /// From logits to scores.
    pub scores: RouteScores,
    /// Logits are multiplied by this (Muse Spark).
    pub logit_scale: f32,
    /// `cap · tanh(logit / cap)`
    pub logit_softcap: Option<f32>,
    /// Bias on the router's projection.
    pub bias: bool,
    /// `e_score_correction_bias` is added to the scores that choose; weights are the scores without it (DeepSeek-V3).
    pub correction_bias: bool,
    /// Experts compete within their groups first.
    pub groups: Option<RouteGroups>,
    /// Weights are divided by their sum over the chosen experts.
    pub renormalize: bool,
    /// Weights are multiplied by this.
    pub scale: f32,
    /// What weights multiply.
    pub weighs: Weighs,
    /// Further experts behind the others that give back what they read (LongCat).
    pub identities: usize,
    /// Weights of each expert are multiplied by a learned number, `per_expert_scale` (Gemma 4).
    pub expert_scales: bool,
}

/// What the weights of chosen experts multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weighs {
    /// What experts compute.
    Outputs,
    /// What they read (Llama 4).
    Inputs,
}

/// Which experts a row has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExpertChoice {
    /// The experts with the best scores.
    Best,
    /// One after the other, each weighed by a softmax over those that come close to it: within twice this share.
    /// Source: arXiv 2409.12136 §2.2.
    SparseMixer(f32),
}

/// Scores as DeepSeek spells them.
pub const ROUTE_SCORES: &[(&str, RouteScores)] = &[
    ("softmax", RouteScores::Softmax),
    ("sigmoid", RouteScores::Sigmoid),
    ("sqrtsoftplus", RouteScores::SqrtSoftplus),
];

impl Router {
    /// The probabilities among all experts.
    pub const SOFTMAX: Self = Self {
        choice: ExpertChoice::Best,
        scores: RouteScores::Softmax,
        logit_scale: 1.0,
        logit_softcap: None,
        bias: false,
        correction_bias: false,
        groups: None,
        renormalize: false,
        scale: 1.0,
        weighs: Weighs::Outputs,
        identities: 0,
        expert_scales: false,
    };
    /// The probabilities among all experts, divided by their sum over the chosen experts.
    pub const SOFTMAX_RENORMALIZED: Self = Self { renormalize: true, ..Self::SOFTMAX };
    /// Sigmoids, chosen with a correction bias.
    pub const SIGMOID_CORRECTED: Self =
        Self { scores: RouteScores::Sigmoid, correction_bias: true, ..Self::SOFTMAX };

    pub(super) fn check_rules(&self, experts: usize, broken: &mut Broken) {
        let Some(RouteGroups { count, kept, best }) = self.groups else { return };
        broken.divides(("n_group", count), ("n_routed_experts", experts));
        broken.check((1..=count).contains(&kept), || {
            format!("`topk_group` ({kept}) is from 1 to `n_group` ({count})")
        });
        let size = experts.checked_div(count).unwrap_or(0);
        broken.check(best <= size, || format!("a group has at least {best} experts, not {size}"));
    }

    /// Names the tensors of a router over this many experts.
    pub(super) fn name_tensors(self, at: &mut Scope, experts: usize) {
        let experts = experts + self.identities;
        if self.expert_scales {
            at.tensor("gate.per_expert_scale", &[experts], TensorRole::Replicated);
        }
        at.replicated("gate", at.hidden, experts, self.bias);
        if self.correction_bias {
            at.tensor("gate.e_score_correction_bias", &[experts], TensorRole::Replicated);
        }
    }

    /// Elements of one row's intermediate results: logits and probabilities.
    pub(super) fn row_elements(self, experts: usize) -> usize {
        2 * experts
    }
}
