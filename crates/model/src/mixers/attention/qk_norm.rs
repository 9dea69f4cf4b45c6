//! The norm on queries and keys, as data, and its tensors.

use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;

/// Norm on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QkNorm {
    /// Which.
    pub norm: Norm,
    /// What it runs over.
    pub over: NormOver,
    /// When.
    pub at: NormAt,
}

/// What the norm of queries and keys runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormOver {
    /// Each head; one weight of `head_dim` that the heads share (Qwen3, Gemma 3).
    Head,
    /// Each head; a weight for each element of each head (Cohere).
    EachHead,
    /// All heads together, a weight for each element (OLMo 2).
    AllHeads,
}

/// When queries and keys are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NormAt {
    BeforeRotation,
    AfterRotation,
}

impl QkNorm {
    /// RMS of each head before it is rotated.
    pub fn per_head(eps: f32) -> Self {
        Self { norm: Norm::Rms { eps }, over: NormOver::Head, at: NormAt::BeforeRotation }
    }

    /// RMS over all heads together before they are rotated.
    pub fn full_width(eps: f32) -> Self {
        Self { over: NormOver::AllHeads, ..Self::per_head(eps) }
    }

    /// This norm after the rotation.
    pub fn after_rotation(self) -> Self {
        Self { at: NormAt::AfterRotation, ..self }
    }

    /// The epsilon, if attention kernels have this norm: all before the rotation, the GPU's behind it, too.
    pub(crate) fn in_kernels(self) -> Option<f32> {
        match self {
            Self { norm: Norm::Rms { eps }, over: NormOver::Head, .. } => Some(eps),
            _ => None,
        }
    }

    pub(super) fn name_tensors(self, heads: [Option<usize>; 2], head_dim: usize, at: &mut Scope) {
        for (name, heads) in ["q_norm", "k_norm"].into_iter().zip(heads) {
            let Some(heads) = heads else { continue };
            match (self.over, self.norm) {
                (NormOver::EachHead, Norm::Rms { .. } | Norm::Layer { .. }) => {
                    at.at(name).tensor("weight", &[heads, head_dim], TensorRole::Heads);
                }
                (NormOver::Head, norm) => at.norm(name, norm, head_dim),
                (NormOver::AllHeads | NormOver::EachHead, norm) => {
                    at.norm_as(TensorRole::Heads, name, norm, heads * head_dim);
                }
            }
        }
    }
}
