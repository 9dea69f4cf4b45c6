//! From our tensors to mlx-lm's: the steps that lead from those to ours, backwards.

use std::collections::BTreeMap;

use mlx::Array;

use super::layout::{Layout, Step};
use super::packing::{Module, Tensors};
use crate::pattern::{Captures, Pattern};
use crate::rewrite::WeightRewrite;
use crate::weights::LoadError;

type Modules = BTreeMap<String, Module>;

/// Gives modules mlx-lm's names and shapes. Those that it does not name keep theirs.
pub(super) fn to_mlx_names(modules: &mut Modules, layout: &Layout) -> Result<(), LoadError> {
    let mut renamed = Modules::new();
    for trace in &layout.traces {
        // Most have no further numbers in their names.
        if trace.ours.iter().any(|name| !name.contains('*') && !modules.contains_key(name)) {
            continue;
        }
        let Some(first) = trace.ours.first().map(|name| Pattern::from(name.as_str())) else { continue };
        let layers: Vec<Captures> = modules.keys().filter_map(|name| first.captures(name)).collect();
        for layer in layers {
            let names = || trace.ours.iter().map(|name| (name, Pattern::from(name.as_str()).fill(&layer)));
            if !names().all(|(_, name)| modules.contains_key(&name)) {
                continue;
            }
            let mut taken: Modules =
                names().filter_map(|(ours, name)| Some((ours.clone(), modules.remove(&name)?))).collect();
            for step in trace.steps.iter().rev() {
                undo(step, &mut taken)?;
            }
            for (pattern, module) in taken {
                renamed.extend(named(&pattern, &layer, module)?);
            }
        }
    }
    modules.extend(renamed);
    for (name, module) in modules.iter_mut() {
        if let Some(shape) = layout.shape_of(name, module.tensors.weight.size()) {
            module.tensors.change(&|tensor| tensor.reshape(&shape))?;
        }
    }
    Ok(())
}

/// A module under its name, or each expert of a stack under its own.
fn named(pattern: &str, layer: &Captures, module: Module) -> Result<Vec<(String, Module)>, LoadError> {
    let holes = pattern.split('.').filter(|segment| *segment == "*").count();
    let fill = |segments: &[String]| {
        Pattern::from(pattern).fill(&Captures { segments: segments.to_vec(), number: None })
    };
    if holes <= layer.segments.len() {
        return Ok(vec![(fill(&layer.segments), module)]);
    }
    let experts = module.tensors.weight.dim(0)?;
    let expert = |number: i32| {
        let index = Array::from_slice(&[number], &[1])?;
        let mut module = Module { tensors: module.tensors.clone(), choice: module.choice };
        module.tensors.change(&|tensor| tensor.take(&index, 0)?.squeeze(&[0]))?;
        Ok((fill(&[&layer.segments[..], &[number.to_string()]].concat()), module))
    };
    (0..experts).map(expert).collect()
}

/// Goes one step back.
fn undo(step: &Step, modules: &mut Modules) -> Result<(), LoadError> {
    let change =
        |modules: &mut Modules, by: &dyn Fn(&Array) -> mlx::Result<Array>| -> Result<(), LoadError> {
            for module in step.to.iter().filter_map(|name| modules.remove(name)).collect::<Vec<_>>() {
                let mut module = module;
                module.tensors.change(by)?;
                modules.insert(step.from.clone(), module);
            }
            Ok(())
        };
    match &step.rewrite {
        WeightRewrite::Split { .. } => {
            join(step, modules, &|parts| mlx::concatenate(parts, output_axis(parts)))
        }
        WeightRewrite::Deinterleave { .. } => join(step, modules, &interleave),
        WeightRewrite::SplitLatent { .. } => {
            for module in modules.values_mut() {
                let Module { tensors, choice } = module;
                *module = Module { tensors: tensors.clone(), choice: *choice }.into_floats()?;
            }
            join(step, modules, &join_latent)
        }
        WeightRewrite::TakeRows { rows, .. } => {
            let order = inverted(rows)?;
            change(modules, &|tensor| tensor.take(&order, 0))
        }
        WeightRewrite::TakeInputs { inputs, .. } => {
            let order = inverted(inputs)?;
            change(modules, &|tensor| tensor.take(&order, -1))
        }
        WeightRewrite::Transposed { .. } => change(modules, &|tensor| tensor.swapaxes(-1, -2)),
        WeightRewrite::Unstack { .. } => change(modules, &|tensor| tensor.flatten(0, 1)),
        _ => change(modules, &|tensor| Ok(tensor.clone())),
    }
}

/// Joins what a step cut. Parts that are packed alike are joined as they are; others as floats.
fn join(
    step: &Step,
    modules: &mut Modules,
    by: &dyn Fn(&[&Array]) -> mlx::Result<Array>,
) -> Result<(), LoadError> {
    let mut parts: Vec<Module> = step.to.iter().filter_map(|name| modules.remove(name)).collect();
    let refused = || LoadError::Format {
        path: step.from.clone(),
        problem: "cannot be joined as mlx-lm has it".to_owned(),
    };
    if !parts.windows(2).all(|pair| matches!(pair, [a, b] if a.choice == b.choice)) {
        parts = parts.into_iter().map(Module::into_floats).collect::<mlx::Result<_>>()?;
    }
    let choice = parts.first().ok_or_else(refused)?.choice;
    let each = |tensor: &dyn Fn(&Tensors) -> Option<Array>| -> Result<Option<Array>, LoadError> {
        let arrays: Vec<Array> = parts.iter().filter_map(|part| tensor(&part.tensors)).collect();
        match arrays.len() {
            0 => Ok(None),
            count if count == parts.len() => Ok(Some(by(&arrays.iter().collect::<Vec<_>>())?)),
            _ => Err(refused()),
        }
    };
    let tensors = Tensors {
        weight: each(&|tensors| Some(tensors.weight.clone()))?.ok_or_else(refused)?,
        scales: each(&|tensors| tensors.scales.clone())?,
        biases: each(&|tensors| tensors.biases.clone())?,
    };
    modules.insert(step.from.clone(), Module { tensors, choice });
    Ok(())
}

/// Outputs are the last axis but one of matrices, the last of vectors, and the first of depthwise convolutions.
fn output_axis(parts: &[&Array]) -> i32 {
    match parts.first().map(|part| part.shape()) {
        Some([_, _, 1]) => -3,
        Some([_]) | None => -1,
        Some(_) => -2,
    }
}

fn interleave(parts: &[&Array]) -> mlx::Result<Array> {
    let axis = output_axis(parts);
    let place = parts.first().map_or(0, |part| part.ndim() as i32 + axis);
    mlx::stack(parts, place + 1)?.flatten(place, place + 1)
}

/// `[heads, latent, nope]` and `[heads, v, latent]` → `[heads · (nope + v), latent]`.
fn join_latent(parts: &[&Array]) -> mlx::Result<Array> {
    match parts {
        [keys, values] => mlx::concatenate(&[&keys.swapaxes(-1, -2)?, values], 1)?.flatten(0, 1),
        _ => Err(mlx::Error::new("a latent projection has two parts")),
    }
}

/// Where each row came from.
fn inverted(order: &[usize]) -> mlx::Result<Array> {
    let mut places = vec![0i32; order.len()];
    for (to, from) in order.iter().enumerate() {
        if let Some(place) = places.get_mut(*from) {
            *place = to as i32;
        }
    }
    Array::from_slice(&places, &[places.len() as i32])
}
