//! The experts of rows, and the sum of what they computed.

use super::elementwise::is_float;
use super::plan::{Plan, dtype, int};
use super::source::{ROUTE, WEIGHTED_SUM};
use crate::Dtype;
use crate::fast::TemplateValue;

/// Weights of chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteWeights {
    /// Their probabilities among all experts.
    Probabilities,
    /// The same, divided by their sum.
    Renormalized,
}

/// The best experts of each row by the softmax over its logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Of the logits.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Experts that there are.
    pub experts: i32,
    /// Experts of a row.
    pub top_k: i32,
    /// What their weights are.
    pub weights: RouteWeights,
}

impl Route {
    /// Input: logits `[rows, experts]`. Outputs: experts `[rows, top_k]` u32, the best first, and their weights
    /// `[rows, top_k]` f32. `None` for over 32 chosen experts or over 1,024 in all.
    pub fn plan(&self) -> Option<Plan> {
        let fits = (1..=32).contains(&self.top_k) && (self.top_k..=1024).contains(&self.experts);
        if !fits || !is_float(self.dtype) {
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
        Some(Plan {
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
        })
    }
}
