//! The forward pass of a router.

use mlx::Array;

use super::Router;
use crate::blocks::Linear;
use crate::ops::{ChosenExperts, ExpertVectors, Ops};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// A router with its projection to one logit an expert.
pub(crate) struct RouterBlock {
    ops: Ops,
    kind: Router,
    top_k: usize,
    gate: Linear,
    /// `[experts]` f32, both.
    correction: Option<Param>,
    factors: Option<Param>,
}

impl RouterBlock {
    pub(crate) fn load(kind: Router, top_k: usize, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let correction = format!("{path}.gate.e_score_correction_bias");
        let correction = kind.correction_bias.then(|| store.float(&correction)).transpose()?;
        let factors = format!("{path}.gate.per_expert_scale");
        let factors = kind.expert_scales.then(|| store.float(&factors)).transpose()?;
        let gate = store.linear(&format!("{path}.gate"))?;
        Ok(Self { ops: store.ops(), kind, top_k, gate, correction, factors })
    }

    /// The chosen experts of each row of `x`, `[T, hidden]`, and the weight of each in float32, `[T, top_k]`.
    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<(ChosenExperts, Array)> {
        let logits = self.gate.forward(x)?;
        let logits = if self.kind.logit_scale == 1.0 { logits } else { logits * self.kind.logit_scale };
        let vectors =
            ExpertVectors { correction: self.correction.as_deref(), factors: self.factors.as_deref() };
        self.ops.route(&logits, &self.kind, vectors, self.top_k)
    }
}
