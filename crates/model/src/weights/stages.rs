//! Cuts a network at the layers of one stage of a pipeline, and leaves out the tensors of the others.
//!
//! Invariant: nothing is read here; tensors are lazy, and the bytes that decide are those of their shapes.

use std::ops::Range;

use super::{LoadError, Weights};
use crate::blueprint::{Blueprint, Head};
use crate::pipeline::{PartBytes, PipelineStage, deal_layers};

/// More stages than this are not proposed.
const STAGES_MAX: usize = 16;

/// Makes `blueprint` and `weights`, which are the whole network's, those of a stage. The error names the numbers of stages that
/// the model could be cut into.
pub(super) fn cut_stage(
    blueprint: &mut Blueprint,
    weights: &mut Weights,
    stage: PipelineStage,
) -> Result<(), LoadError> {
    let bytes = bytes_of(blueprint, weights);
    let ranges = ranges(blueprint);
    let fits = |range: &Range<usize>| ranges.contains(range);
    let dealt = deal_layers(&bytes, stage.count(), fits);
    let Some(layers) = dealt.and_then(|dealt| dealt.into_iter().nth(stage.index())) else {
        let sizes = (2..=STAGES_MAX).filter(|stages| deal_layers(&bytes, *stages, fits).is_some());
        let (stages, sizes) = (stage.count(), sizes.collect());
        return Err(LoadError::Stages { stages, problem: problem(blueprint, stages), sizes });
    };
    let own = blueprint.stage(layers);
    *blueprint = own.map_err(|error| LoadError::Stages {
        stages: stage.count(),
        problem: error.to_string(),
        sizes: Vec::new(),
    })?;
    blueprint.retain_tensors(weights);
    Ok(())
}

/// Bytes of the layers, and of what the first and the last stage have besides.
fn bytes_of(blueprint: &Blueprint, weights: &Weights) -> PartBytes {
    let root = blueprint.names.root;
    let in_module = |module: String| -> u64 {
        let of_module = weights.iter().filter(|(name, _)| name.starts_with(&module));
        of_module.map(|(_, tensor)| tensor.nbytes() as u64).sum()
    };
    let mut counted = None;
    let of_layer = |number: usize| {
        // Parts of a layer that are layers of their own here share a number.
        let is_new = counted.replace(number) != Some(number);
        if is_new { in_module(format!("{root}.layers.{number}.")) } else { 0 }
    };
    let layers = blueprint.layers.iter().map(|layer| layer.number).map(of_layer).collect();
    let first = in_module(format!("{root}.{}.", blueprint.names.embed));
    let last = if blueprint.head == Head::Tied { first } else { in_module("lm_head.".to_owned()) };
    PartBytes { layers, first, last }
}

/// Layers that can be a stage. A stage caches something, by which its sequences have a place.
fn ranges(blueprint: &Blueprint) -> Vec<Range<usize>> {
    let count = blueprint.layers.len();
    let all = (0..count).flat_map(|start| (start + 1..=count).map(move |end| start..end));
    let caches = |range: &Range<usize>| {
        let layers = blueprint.layers.get(range.clone()).unwrap_or_default();
        layers.iter().any(|layer| !layer.mixer.spec().caches().is_empty())
    };
    all.filter(|range| caches(range) && blueprint.stage(range.clone()).is_ok()).collect()
}

/// Why there is no such number of stages.
fn problem(blueprint: &Blueprint, stages: usize) -> String {
    let count = blueprint.layers.len();
    if count < stages {
        return format!("it has {count} layers");
    }
    let refusals =
        (1..count).filter_map(|cut| blueprint.stage(0..cut).and(blueprint.stage(cut..count)).err());
    let refusal = refusals.map(|refusal| refusal.to_string()).next();
    refusal.unwrap_or_else(|| "some stage would have no layer that caches".to_owned())
}
