//! Takes a rank's part of each tensor: what its blueprint's shapes name of the whole one's.
//!
//! Invariant: tensors are cut lazily, and nothing is read here. Axes that do not differ are whole on each rank.

use std::collections::BTreeSet;

use mlx::Array;

use super::{LoadError, Weights};
use crate::blueprint::{Blueprint, Head};
use crate::manifest::{Manifest, TensorRole};
use crate::quantization::Quantization;
use crate::shard::{Part, Shard};

/// More ranks than this are not proposed.
const RANKS_MAX: usize = 16;

/// A rank's tensors.
pub(super) struct Dealt {
    pub(super) weights: Weights,
    /// Modules whose products are parts of a sum over the ranks.
    pub(super) summed: BTreeSet<String>,
}

/// One rank's tensors of a whole checkpoint, and its blueprint in the place of the whole one. The error names the numbers of
/// ranks that the model could be divided among.
pub(super) fn deal(
    blueprint: &mut Blueprint,
    quantization: &Quantization,
    weights: Weights,
    shard: &Shard,
) -> Result<Dealt, LoadError> {
    let part = Part { rank: shard.rank(), ranks: shard.ranks(), unit: group_of(quantization, &weights) };
    let refused = |problem| {
        let fits = |ranks: &usize| cut(blueprint, &weights, Part { ranks: *ranks, rank: 0, ..part }).is_ok();
        LoadError::Ranks { ranks: shard.ranks(), problem, sizes: (2..=RANKS_MAX).filter(fits).collect() }
    };
    let own = cut(blueprint, &weights, part).map_err(refused)?;
    let manifests = [&blueprint.manifest(), &own.manifest()];
    let mut dealt = Dealt { weights: Weights::new(), summed: BTreeSet::new() };
    for (name, tensor) in weights {
        let cut = shapes(&name, manifests).filter(|[whole, own]| whole != own);
        let role = manifests[0].stored_role(&name);
        let summed = cut.is_some() && matches!(role, Some(TensorRole::Row | TensorRole::ExpertRow));
        if let Some(path) = name.strip_suffix(".weight").filter(|_| summed) {
            dealt.summed.insert(path.to_owned());
        }
        let tensor = match cut {
            _ if is_head(&name, blueprint.head) => rows_of(&tensor, shard)?,
            Some(shapes) => part_of(&tensor, role, shapes, part)?,
            None => tensor,
        };
        dealt.weights.insert(name, tensor);
    }
    if shard.rank() > 0 {
        without_expert_biases(manifests[0], &mut dealt)?;
    }
    *blueprint = own;
    Ok(dealt)
}

/// Elements that quantized weights have together: a multiple of all groups.
fn group_of(quantization: &Quantization, weights: &Weights) -> usize {
    let packed = weights.keys().filter_map(|name| name.strip_suffix(".scales"));
    let groups = packed.filter_map(|path| quantization.at(path)).map(|choice| choice.group.max(1) as usize);
    // Groups are powers of two.
    groups.max().unwrap_or(1)
}

/// A rank's blueprint, if all tensors divide as it says.
fn cut(blueprint: &Blueprint, weights: &Weights, part: Part) -> Result<Blueprint, String> {
    let own = blueprint.cut(part)?;
    let manifests = [&blueprint.manifest(), &own.manifest()];
    for (name, tensor) in weights {
        let Some([whole, own]) = shapes(name, manifests) else { continue };
        for ((stored, whole), own) in tensor.shape().iter().zip(whole).zip(own) {
            // Packed weights have fewer words than elements, and a scale for each group.
            if !(*stored as usize * own).is_multiple_of((*whole).max(1)) {
                return Err(format!(
                    "{own} of the {whole} inputs of `{name}` are not whole groups of its quantization"
                ));
            }
        }
    }
    Ok(own)
}

/// What the manifests say of a stored tensor, or of the weight that it is a part of.
fn shapes<'a>(name: &str, manifests: [&'a Manifest; 2]) -> Option<[&'a [usize]; 2]> {
    let module = || name.strip_suffix(".scales").or_else(|| name.strip_suffix(".biases"));
    let [whole, own] = manifests.map(|manifest| {
        let of_weight = || manifest.0.get(&format!("{}.weight", module()?));
        manifest.0.get(name).or_else(of_weight).map(Vec::as_slice)
    });
    Some([whole?, own?])
}

/// A rank's part of a tensor, packed or not, whose axes have these sizes unpacked.
fn part_of(
    tensor: &Array,
    role: Option<TensorRole>,
    [whole, own]: [&[usize]; 2],
    part: Part,
) -> Result<Array, LoadError> {
    let (mut start, mut stop) = (Vec::new(), Vec::new());
    for ((stored, whole), own) in tensor.shape().iter().zip(whole).zip(own) {
        let scaled = |at: usize| (*stored as usize * at / (*whole).max(1)) as i32;
        let first = if whole == own { 0 } else { first_of(*whole, *own, role, part) };
        start.push(scaled(first));
        stop.push(scaled(first + own));
    }
    Ok(tensor.slice(&start, &stop)?.contiguous()?)
}

/// Where a rank's `own` elements of `whole` begin.
fn first_of(whole: usize, own: usize, role: Option<TensorRole>, part: Part) -> usize {
    match role {
        _ if own * part.ranks == whole => part.rank * own,
        // Fewer heads than ranks: neighbours share one.
        Some(TensorRole::Heads) => part.rank * (whole / own.max(1)) / part.ranks * own,
        _ => part.columns(whole).start,
    }
}

/// Tensors of a head of the vocabulary, which need not divide.
fn is_head(name: &str, head: Head) -> bool {
    head == Head::Own && name.starts_with("lm_head.")
}

/// A rank's rows of a head's tensor.
fn rows_of(tensor: &Array, shard: &Shard) -> Result<Array, LoadError> {
    let rows = shard.range(tensor.dim(0)? as usize);
    let (mut start, mut stop) = (vec![0; tensor.ndim()], tensor.shape().to_vec());
    (start[0], stop[0]) = (rows.start as i32, rows.end as i32);
    Ok(tensor.slice(&start, &stop)?.contiguous()?)
}

/// Biases of experts' outputs are in the first rank's sum alone.
fn without_expert_biases(whole: &Manifest, dealt: &mut Dealt) -> Result<(), LoadError> {
    for path in &dealt.summed {
        let name = format!("{path}.bias");
        if whole.role(&name) == Some(TensorRole::ExpertRow)
            && let Some(bias) = dealt.weights.get_mut(&name)
        {
            *bias = Array::zeros(bias.shape(), bias.dtype()?)?;
        }
    }
    Ok(())
}
