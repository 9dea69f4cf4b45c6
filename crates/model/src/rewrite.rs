//! From the tensors a checkpoint has to the tensors a blueprint names.
//!
//! Rewrites are data, run once at load over lazy arrays. A difference that is resolved here never
//! reaches the forward pass. A checkpoint mlx-lm has already converted passes through untouched: a
//! rewrite whose source names are absent does nothing.

use crate::Pattern;

/// One step from published tensors to ours.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WeightRewrite {
    /// Discards tensors no module reads: rotary tables, a tied head.
    Drop { tensors: Pattern },
    /// Joins the tensors that differ only in `#` along a new leading axis.
    StackExperts { from: Pattern, to: Pattern, experts: usize },
    /// Reorders three axes, unless the last already has length `unless_last`.
    Transpose { tensors: Pattern, order: [i32; 3], unless_last: i32 },
    /// Adds one to norms stored as `weight − 1`. With `if_present`, only in checkpoints that were
    /// published with such a tensor: converted ones already carry the sum.
    AddOne { tensors: Pattern, if_present: Option<Pattern> },
}
