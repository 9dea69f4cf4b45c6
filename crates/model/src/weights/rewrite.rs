//! Applies a blueprint's rewrites to a checkpoint's lazy arrays.

use std::collections::{BTreeMap, BTreeSet};

use mlx::Array;

use crate::pattern::Captures;
use crate::{LoadError, Pattern, WeightRewrite, Weights};

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
