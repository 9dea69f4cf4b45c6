//! Applies a blueprint's rewrites to a checkpoint's lazy arrays.

use std::collections::{BTreeMap, BTreeSet};

use mlx::{Array, Dtype, QuantMode, Quantized};

use crate::pattern::{Captures, Pattern};
use crate::quantization::Quantization;
use crate::rewrite::{WeightRewrite, When};
use crate::weights::{LoadError, Weights};

impl WeightRewrite {
    /// The weights after this step. `published`: the names before the first step.
    pub(crate) fn apply(
        &self,
        mut weights: Weights,
        published: &BTreeSet<String>,
        quantization: &Quantization,
    ) -> Result<Weights, LoadError> {
        match self {
            Self::Drop { tensors } => weights.retain(|name, _| !tensors.matches(name)),
            Self::Keep { tensors } => {
                weights.retain(|name, _| tensors.iter().any(|kept| kept.matches(name)));
            }
            Self::DropLayersFrom { layers } => {
                let pattern = Pattern::from("model.layers.#.**");
                let layer = |name: &str| pattern.captures(name).and_then(|captures| captures.number);
                weights.retain(|name, _| layer(name).is_none_or(|layer| layer < *layers));
            }
            Self::DropBeside { tensors, other } => {
                if weights.keys().any(|name| other.matches(name)) {
                    weights.retain(|name, _| !tensors.matches(name));
                }
            }
            Self::Rename { from, to } => {
                for taken in take(&mut weights, from) {
                    weights.insert(to.fill(&taken.captures), taken.tensor);
                }
            }
            Self::Share { from, to } => {
                for Taken { captures, tensor, .. } in take(&mut weights, from) {
                    weights.extend(to.iter().map(|to| (to.fill(&captures), tensor.clone())));
                }
            }
            Self::Split { from, to } => split(&mut weights, from, to)?,
            Self::Deinterleave { from, to } => deinterleave(&mut weights, from, to)?,
            Self::SplitLatent { from, heads, nope_dim, v_head_dim } => {
                let dims = [*heads, *nope_dim, *v_head_dim].map(|size| size as i32);
                split_latent(&mut weights, from, dims, quantization)?;
            }
            Self::MoveFactors { from, to } => move_factors(&mut weights, from, to)?,
            Self::StackExperts { from, to, experts } => stack_experts(&mut weights, from, to, *experts)?,
            Self::Join { from, to } => join(&mut weights, from, to)?,
            Self::Unstack { from, to, experts } => unstack(&mut weights, from, to, *experts as i32)?,
            Self::ZeroBias { weights: of, bias } => zero_bias(&mut weights, of, bias)?,
            Self::GateShares { from, stays, joins } => gate_shares(&mut weights, from, [stays, joins])?,
            Self::Add { tensors, when, .. }
            | Self::Scale { tensors, when, .. }
            | Self::RoundToBf16 { tensors, when } => {
                if when.holds(&weights, published) {
                    change(&mut weights, tensors, |name, tensor| self.changed(name, tensor))?;
                }
            }
            Self::TakeInputs { tensors, .. } => {
                unpack(&mut weights, tensors, quantization)?;
                change(&mut weights, tensors, |name, tensor| self.changed(name, tensor))?;
            }
            Self::TakeRows { tensors, .. }
            | Self::Transposed { tensors }
            | Self::Reshape { tensors, .. }
            | Self::NormalizeInputs { tensors }
            | Self::NormalizeOutputs { tensors }
            | Self::Transpose { tensors, .. } => {
                change(&mut weights, tensors, |name, tensor| self.changed(name, tensor))?;
            }
        }
        Ok(weights)
    }

    /// What becomes of one tensor, by steps that change each on its own.
    fn changed(&self, name: &str, tensor: &Array) -> Result<Array, LoadError> {
        let refused = |want: &str| Err(misshapen(name, tensor, want.to_owned()));
        match self {
            Self::TakeRows { rows, .. } if tensor.dim(0)? as usize != rows.len() => {
                refused(&format!("{} rows", rows.len()))
            }
            Self::TakeRows { rows, .. } => Ok(tensor.take(&indices(rows)?, 0)?),
            Self::TakeInputs { inputs, .. } if tensor.dim(-1)? as usize != inputs.len() => {
                refused(&format!("{} inputs", inputs.len()))
            }
            Self::TakeInputs { inputs, .. } => Ok(tensor.take(&indices(inputs)?, -1)?),
            Self::Transposed { .. } => match tensor.ndim() {
                2 | 3 => Ok(tensor.swapaxes(-1, -2)?),
                _ => refused("a matrix, or one for each expert"),
            },
            Self::Add { amount, .. } => Ok(tensor + *amount),
            Self::RoundToBf16 { .. } => Ok(tensor.astype(Dtype::Bf16)?.astype(tensor.dtype()?)?),
            Self::Scale { factors, .. } => match factors.as_slice() {
                [factor] => Ok(tensor * *factor),
                factors if tensor.dim(0)? as usize == factors.len() => {
                    let axes: Vec<i32> = (1..tensor.ndim() as i32).collect();
                    let factors = Array::from_slice(factors, &[factors.len() as i32])?.expand_dims(&axes)?;
                    Ok(tensor * factors.astype(tensor.dtype()?)?)
                }
                factors => refused(&format!("{} rows", factors.len())),
            },
            Self::Reshape { shape, .. } if tensor.size() == shape.iter().product::<usize>() => {
                Ok(tensor.reshape(&shape.iter().map(|size| *size as i32).collect::<Vec<_>>())?)
            }
            Self::Reshape { shape, .. } => refused(&format!("as many numbers as {shape:?}")),
            // A packed one was normalized before.
            Self::NormalizeInputs { .. } | Self::NormalizeOutputs { .. } if tensor.dtype()? == Dtype::U32 => {
                Ok(tensor.clone())
            }
            Self::NormalizeInputs { .. } => Ok(normalized(tensor, 0)?),
            Self::NormalizeOutputs { .. } => Ok(normalized(tensor, -1)?),
            Self::Transpose { order, unless_last, .. } => match tensor.shape() {
                [_, _, last] if last == unless_last => Ok(tensor.clone()),
                [_, _, _] => Ok(tensor.transpose(order)?),
                _ => refused("of three axes"),
            },
            _ => Ok(tensor.clone()),
        }
    }

    /// Whether it changes what a matrix of this name computes, beyond the names and the order of its outputs.
    pub(crate) fn changes_values(&self, name: &str) -> bool {
        match self {
            Self::TakeInputs { tensors, .. }
            | Self::Transposed { tensors }
            | Self::Reshape { tensors, .. }
            | Self::NormalizeInputs { tensors }
            | Self::NormalizeOutputs { tensors }
            | Self::Transpose { tensors, .. }
            | Self::RoundToBf16 { tensors, .. }
            | Self::Add { tensors, .. }
            | Self::Scale { tensors, .. } => tensors.matches(name),
            Self::GateShares { from, .. } => from.matches(name),
            Self::StackExperts { from, .. } | Self::Unstack { from, .. } | Self::SplitLatent { from, .. } => {
                from.matches(name)
            }
            Self::MoveFactors { from, to } => from.matches(name) || to.matches(name),
            Self::Drop { .. }
            | Self::Keep { .. }
            | Self::DropBeside { .. }
            | Self::DropLayersFrom { .. }
            | Self::Rename { .. }
            | Self::Share { .. }
            | Self::Split { .. }
            | Self::Deinterleave { .. }
            | Self::Join { .. }
            | Self::ZeroBias { .. }
            | Self::TakeRows { .. } => false,
        }
    }

    /// The paths of packed modules after this step.
    pub(crate) fn apply_to_paths(&self, quantization: &mut Quantization) {
        let targets: Vec<(&Pattern, &Pattern)> = match self {
            Self::Rename { from, to } | Self::StackExperts { from, to, .. } => vec![(from, to)],
            Self::Split { from, to } => to.iter().map(|(to, _)| (from, to)).collect(),
            Self::Deinterleave { from, to } | Self::Share { from, to } => {
                to.iter().map(|to| (from, to)).collect()
            }
            _ => return,
        };
        let mut renamed = Vec::new();
        for (path, choice) in &quantization.by_path {
            let name = format!("{path}.weight");
            let moved = targets.iter().filter_map(|(from, to)| Some(to.fill(&from.captures(&name)?)));
            renamed.extend(moved.map(|name| (name.trim_end_matches(".weight").to_owned(), *choice)));
        }
        quantization.by_path.extend(renamed);
    }
}

fn indices(numbers: &[usize]) -> mlx::Result<Array> {
    let numbers: Vec<i32> = numbers.iter().map(|number| *number as i32).collect();
    Array::from_slice(&numbers, &[numbers.len() as i32])
}

/// Divided by its length along an axis.
fn normalized(tensor: &Array, axis: i32) -> mlx::Result<Array> {
    let wide = tensor.astype(Dtype::F32)?;
    let length = wide.square()?.sum(&[axis])?.sqrt()?.expand_dims(&[axis])? + 1e-7;
    (wide / length).astype(tensor.dtype()?)
}

fn move_factors(weights: &mut Weights, from: &Pattern, to: &Pattern) -> Result<(), LoadError> {
    for Taken { name, captures, tensor } in take(weights, from) {
        if let Some(target) = weights.get_mut(&to.fill(&captures)) {
            *target = &*target * &tensor;
        }
        weights.insert(name, Array::ones(tensor.shape(), tensor.dtype()?)?);
    }
    Ok(())
}

fn join(weights: &mut Weights, from: &[Pattern], to: &Pattern) -> Result<(), LoadError> {
    let taken: Vec<Taken> = from.iter().flat_map(|from| take(weights, from)).collect();
    let Some(first) = taken.first() else { return Ok(()) };
    let parts: Vec<&Array> = taken.iter().map(|taken| &taken.tensor).collect();
    let like = |part: &&&Array| part.shape().get(1..) != first.tensor.shape().get(1..);
    if let Some(other) = parts.iter().find(like) {
        return Err(misshapen(&first.name, other, format!("rows as of {:?}", first.tensor.shape())));
    }
    weights.insert(to.fill(&first.captures), mlx::concatenate(&parts, 0)?);
    Ok(())
}

fn zero_bias(weights: &mut Weights, of: &Pattern, bias: &Pattern) -> Result<(), LoadError> {
    let found = weights.iter().filter_map(|(name, weight)| {
        let bias = bias.fill(&of.captures(name)?);
        // A packed one is of whole numbers.
        let scales = name.strip_suffix(".weight").and_then(|path| weights.get(&format!("{path}.scales")));
        Some((bias, weight.clone(), scales.unwrap_or(weight).clone()))
    });
    for (bias, weight, typed) in found.collect::<Vec<_>>() {
        if let std::collections::btree_map::Entry::Vacant(entry) = weights.entry(bias) {
            entry.insert(Array::zeros(&[weight.dim(-2)?], typed.dtype()?)?);
        }
    }
    Ok(())
}

/// Source: mlx-lm `models/muse_spark.py`.
fn gate_shares(
    weights: &mut Weights,
    from: &Pattern,
    [stays, joins]: [&Pattern; 2],
) -> Result<(), LoadError> {
    let least = Array::scalar(1e-3, Dtype::F32)?;
    for Taken { captures, tensor, .. } in take(weights, from) {
        let logits = tensor.astype(Dtype::F32)? / 0.3;
        let share = logits.sigmoid()?;
        let rest = logits.negative()?.sigmoid()? * (&share + 1.0);
        weights.insert(stays.fill(&captures), rest.maximum(&least)?.sqrt()?);
        weights.insert(joins.fill(&captures), share);
    }
    Ok(())
}

fn unstack(weights: &mut Weights, from: &Pattern, to: &Pattern, experts: i32) -> Result<(), LoadError> {
    for Taken { name, captures, tensor } in take(weights, from) {
        if tensor.ndim() != 2 || tensor.dim(0)? % experts.max(1) != 0 {
            return Err(misshapen(&name, &tensor, format!("a matrix of {experts} experts")));
        }
        weights.insert(to.fill(&captures), tensor.reshape(&[experts, -1, tensor.dim(1)?])?);
    }
    Ok(())
}

fn split_latent(
    weights: &mut Weights,
    from: &Pattern,
    [heads, nope_dim, v_head_dim]: [i32; 3],
    quantization: &Quantization,
) -> Result<(), LoadError> {
    for Taken { name, tensor, .. } in take(weights, from) {
        let path = name.trim_end_matches(".weight");
        let tensor = unpacked(weights, path, tensor, quantization)?;
        let rows = heads * (nope_dim + v_head_dim);
        if tensor.ndim() != 2 || tensor.dim(0)? != rows {
            return Err(misshapen(&name, &tensor, format!("a matrix of {rows} rows")));
        }
        let by_head = tensor.reshape(&[heads, -1, tensor.dim(1)?])?;
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        if let [keys, values] = by_head.split(&[nope_dim], 1)?.as_slice() {
            weights.insert(format!("{parent}.embed_q.weight"), keys.swapaxes(-1, -2)?);
            weights.insert(format!("{parent}.unembed_out.weight"), values.clone());
        }
    }
    Ok(())
}

/// Makes floats of packed tensors: their inputs share words and scales, so they cannot change places.
fn unpack(weights: &mut Weights, tensors: &Pattern, quantization: &Quantization) -> Result<(), LoadError> {
    let names: Vec<String> = weights.keys().filter(|name| tensors.matches(name)).cloned().collect();
    for name in names {
        if let (Some(path), Some(tensor)) = (name.strip_suffix(".weight"), weights.get(&name).cloned()) {
            let floats = unpacked(weights, path, tensor, quantization)?;
            weights.insert(name, floats);
        }
    }
    Ok(())
}

/// A packed tensor's floats; others as they are.
fn unpacked(
    weights: &mut Weights,
    path: &str,
    tensor: Array,
    quantization: &Quantization,
) -> Result<Array, LoadError> {
    let (scales, biases) =
        (weights.remove(&format!("{path}.scales")), weights.remove(&format!("{path}.biases")));
    let (Some(scales), Some(choice)) = (scales, quantization.at(path)) else { return Ok(tensor) };
    let dtype = if choice.mode == QuantMode::Affine { scales.dtype()? } else { Dtype::Bf16 };
    let (group, bits, mode) = (choice.group, choice.bits, choice.mode);
    Ok(Quantized { weight: tensor, scales, biases, group, bits, mode }.dequantize(dtype)?)
}

impl When {
    fn holds(&self, weights: &Weights, published: &BTreeSet<String>) -> bool {
        match self {
            Self::Always => true,
            Self::Published(pattern) => published.iter().any(|name| pattern.matches(name)),
            Self::LastAxisIsNot(pattern, length) => weights.iter().any(|(name, tensor)| {
                pattern.matches(name) && tensor.shape().last().is_some_and(|last| last != length)
            }),
        }
    }
}

fn misshapen(name: &str, tensor: &Array, want: String) -> LoadError {
    LoadError::Shape { name: name.to_owned(), shape: tensor.shape().to_vec(), want }
}

/// Replaces the tensors that fit.
fn change(
    weights: &mut Weights,
    tensors: &Pattern,
    by: impl Fn(&str, &Array) -> Result<Array, LoadError>,
) -> Result<(), LoadError> {
    for (name, tensor) in weights.iter_mut().filter(|(name, _)| tensors.matches(name)) {
        *tensor = by(name, tensor)?;
    }
    Ok(())
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

/// Outputs are the last axis but one of weights, and the last of biases; experts lie before both.
fn output_axis(name: &str) -> i32 {
    if name.ends_with(".bias") { -1 } else { -2 }
}

fn split(weights: &mut Weights, from: &Pattern, to: &[(Pattern, usize)]) -> Result<(), LoadError> {
    let total: usize = to.iter().map(|(_, rows)| rows).sum();
    for Taken { name, captures, tensor } in take(weights, from) {
        // Depthwise convolutions have outputs first.
        let is_conv = matches!(tensor.shape(), [_, _, 1]) && !name.ends_with(".bias");
        let axis = if is_conv { -3 } else { output_axis(&name) };
        if (tensor.ndim() as i32) < -axis || tensor.dim(axis)? as usize != total {
            return Err(misshapen(&name, &tensor, format!("{total} outputs")));
        }
        let mut end = 0;
        let cuts: Vec<i32> = to[..to.len() - 1]
            .iter()
            .map(|(_, rows)| {
                end += *rows as i32;
                end
            })
            .collect();
        for ((to, _), part) in to.iter().zip(tensor.split(&cuts, axis)?) {
            weights.insert(to.fill(&captures), part);
        }
    }
    Ok(())
}

fn deinterleave(weights: &mut Weights, from: &Pattern, to: &[Pattern]) -> Result<(), LoadError> {
    for Taken { name, captures, tensor } in take(weights, from) {
        let axis = output_axis(&name);
        let place = tensor.ndim() as i32 + axis;
        if place < 0 || tensor.dim(axis)? % to.len() as i32 != 0 {
            return Err(misshapen(&name, &tensor, format!("outputs for {} tensors", to.len())));
        }
        // `[.., outputs, ..]` as `[.., outputs of each, tensors, ..]`.
        let mut shape = tensor.shape().to_vec();
        shape[place as usize] /= to.len() as i32;
        shape.insert(place as usize + 1, to.len() as i32);
        let by_turn = tensor.reshape(&shape)?;
        for (turn, to) in to.iter().enumerate() {
            let part = by_turn.take(&indices(&[turn])?, place + 1)?.squeeze(&[place + 1])?;
            weights.insert(to.fill(&captures), part);
        }
    }
    Ok(())
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
            return Err(misshapen(&odd.name, &odd.tensor, format!("{shape:?} like the first expert")));
        }
        let parts: Vec<&Array> = group.values().map(|taken| &taken.tensor).collect();
        weights.insert(to, mlx::stack(&parts, 0)?);
    }
    Ok(())
}
