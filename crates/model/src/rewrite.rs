//! From the tensors a checkpoint has to the tensors a blueprint names.
//!
//! Rewrites are data, run once at load over lazy arrays. A difference that is resolved here never
//! reaches the forward pass. A checkpoint mlx-lm has already converted passes through untouched: a
//! rewrite whose source names are absent does nothing.

use std::collections::{BTreeMap, BTreeSet};

use mlx::Array;

use crate::pattern::Captures;
use crate::{LoadError, Pattern, Weights};

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

impl WeightRewrite {
    /// The weights after this step. `published`: the names before the first step.
    pub(crate) fn apply(
        &self,
        mut weights: Weights,
        published: &BTreeSet<String>,
    ) -> Result<Weights, LoadError> {
        match self {
            Self::Drop { tensors } => weights.retain(|name, _| !tensors.matches(name)),
            Self::StackExperts { from, to, experts } => stack_experts(&mut weights, from, to, *experts)?,
            Self::Transpose { tensors, order, unless_last } => {
                for (name, tensor) in weights.iter_mut().filter(|(name, _)| tensors.matches(name)) {
                    match tensor.shape() {
                        [_, _, last] if last == unless_last => {}
                        [_, _, _] => *tensor = tensor.transpose(order)?,
                        shape => {
                            let (name, shape) = (name.clone(), shape.to_vec());
                            return Err(LoadError::Shape { name, shape, want: "of three axes".to_owned() });
                        }
                    }
                }
            }
            Self::AddOne { tensors, if_present } => {
                let witness = |pattern: &Pattern| published.iter().any(|name| pattern.matches(name));
                if !if_present.as_ref().is_none_or(witness) {
                    return Ok(weights);
                }
                for (_, tensor) in weights.iter_mut().filter(|(name, _)| tensors.matches(name)) {
                    *tensor = &*tensor + 1.0;
                }
            }
        }
        Ok(weights)
    }
}

struct Taken {
    name: String,
    captures: Captures,
    tensor: Array,
}

fn take(weights: &mut Weights, from: &Pattern) -> Vec<Taken> {
    let matching: Vec<(String, Captures)> =
        weights.keys().filter_map(|name| Some((name.clone(), from.captures(name)?))).collect();
    let taken = matching.into_iter().filter_map(|(name, captures)| {
        let tensor = weights.remove(&name)?;
        Some(Taken { name, captures, tensor })
    });
    taken.collect()
}

fn stack_experts(
    weights: &mut Weights,
    from: &Pattern,
    to: &Pattern,
    experts: usize,
) -> Result<(), LoadError> {
    let mut groups: BTreeMap<String, BTreeMap<usize, Taken>> = BTreeMap::new();
    for taken in take(weights, from) {
        let Some(expert) = taken.captures.number else { continue };
        groups.entry(to.fill(&taken.captures)).or_default().insert(expert, taken);
    }
    for (to, group) in groups {
        if !group.keys().copied().eq(0..experts) {
            return Err(LoadError::Experts { to, found: group.len(), experts });
        }
        let shape = group.values().next().map(|first| first.tensor.shape().to_vec()).unwrap_or_default();
        if let Some(odd) = group.values().find(|taken| taken.tensor.shape() != shape) {
            return Err(LoadError::Shape {
                name: odd.name.clone(),
                shape: odd.tensor.shape().to_vec(),
                want: format!("{shape:?} like the first expert"),
            });
        }
        let parts: Vec<&Array> = group.values().map(|taken| &taken.tensor).collect();
        weights.insert(to, mlx::stack(&parts, 0)?);
    }
    Ok(())
}
