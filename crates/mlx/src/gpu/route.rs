//! The experts of rows, and the sum of what they computed.

use super::elementwise::is_float;
use super::plan::{Plan, bits, dtype, int};
use super::source::{ROUTE, WEIGHTED_SUM};
use crate::RouteScores;
use crate::dtype::Dtype;
use crate::fast::TemplateValue;

/// Weights of chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteWeights {
    /// Their scores.
    Scores,
    /// Scores of chosen experts, divided by their sum.
    Renormalized,
}

/// Whether a bias of each expert is added to the scores that choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// None.
    Absent,
    /// One for each expert.
    PerExpert,
}

/// Whether each expert's weights have a factor of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertFactors {
    /// None.
    Absent,
    /// One for each expert.
    PerExpert,
}

/// Groups of experts, of which a few take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// How many there are; divides the number of experts.
    pub count: i32,
    /// How many take part.
    pub kept: i32,
    /// A group is as good as the sum of so many of its best experts.
    pub best: i32,
}

impl ExpertGroups {
    /// All experts take part.
    pub const ONE: Self = Self { count: 1, kept: 1, best: 1 };
}

/// The best experts of each row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// Of the logits.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Experts that there are.
    pub experts: i32,
    /// Experts of a row.
    pub top_k: i32,
    /// What logits become.
    pub scores: RouteScores,
    /// Before that they become `cap · tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// What chooses with the scores.
    pub correction: Correction,
    /// Groups of experts that compete.
    pub groups: ExpertGroups,
    /// What weights are.
    pub weights: RouteWeights,
    /// They are multiplied by this.
    pub factor: f32,
    /// And by these.
    pub factors: ExpertFactors,
}

impl Route {
    /// Inputs: logits `[rows, experts]`; corrections and factors `[experts]`, floats (any without). Outputs: experts `[rows, top_k]` u32,
    /// the best first, and their weights `[rows, top_k]` f32. `None` for over 32 chosen experts or groups, or over 1,024
    /// experts in all.
    pub fn plan(&self) -> Option<Plan> {
        let fits = (1..=32).contains(&self.top_k) && (self.top_k..=1024).contains(&self.experts);
        let ExpertGroups { count, kept, best } = self.groups;
        let divides = (1..=32).contains(&count) && self.experts % count == 0;
        let size = if divides { self.experts / count } else { 0 };
        if !fits || !divides || !is_float(self.dtype) || kept < 1 || !(1..=size.min(8)).contains(&best) {
            return None;
        }
        let simds = 4;
        let shape = vec![self.rows, self.top_k];
        Some(Plan {
            kernel: &ROUTE,
            constants: vec![
                dtype("T", self.dtype),
                int("E", self.experts),
                int("TOPK", self.top_k),
                int("NS", simds),
                int("SCORES", self.scores as i32),
                int("GROUPS", count),
                int("KEPT", kept),
                int("BEST", best),
                bits("CAP", self.softcap.unwrap_or(0.0)),
                bits("FACTOR", self.factor),
                ("CORRECTED", TemplateValue::Bool(self.correction == Correction::PerExpert)),
                ("SCALED", TemplateValue::Bool(self.factors == ExpertFactors::PerExpert)),
                ("RENORM", TemplateValue::Bool(self.weights == RouteWeights::Renormalized)),
            ],
            groups: [(self.rows + simds - 1) / simds, 1, 1],
            threads: simds * 32,
            outputs: vec![(shape.clone(), Dtype::U32), (shape, Dtype::F32)],
        })
    }
}

/// The weighted sum of a row's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedSum {
    /// Of the parts and of the sum.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Parts of a row.
    pub parts: i32,
    /// Elements of a row.
    pub width: i32,
}

impl WeightedSum {
    /// Inputs: parts `[rows · parts, width]` and weights `[rows, parts]` f32. Output: `[rows, width]`. `None` for widths
    /// that are no multiple of 8.
    pub fn plan(&self) -> Option<Plan> {
        if self.width % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let threads = 128;
        Plan {
            kernel: &WEIGHTED_SUM,
            constants: vec![
                dtype("T", self.dtype),
                int("H", self.width),
                int("TOPK", self.parts),
                int("NT", threads),
            ],
            groups: [(self.width / 8 + threads - 1) / threads, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        }
        .within_grid()
    }
}
