//! Exactly the tensors a blueprint names must be there, each in its shape, packed or not.

use std::collections::BTreeSet;

use mlx::QuantMode;

use crate::quantization::{Quantization, QuantizationChoice};
use crate::{Blueprint, LoadError, Weights};

const LISTED_MAX: usize = 12;

/// One line that lists what is wrong, each list cut short where it would not end.
pub(super) fn listed(missing: &[String], unexpected: &[String], misshapen: &[String]) -> String {
    let lists = [("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen)];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
        let shown: Vec<&str> = names.iter().take(LISTED_MAX).map(String::as_str).collect();
        let more = names.len().saturating_sub(LISTED_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{what}: {}{rest}", shown.join(", "))
    });
    lists.collect::<Vec<_>>().join("; ")
}

/// Fails with every difference between what the blueprint names and what the checkpoint has.
pub(crate) fn check(
    blueprint: &Blueprint,
    quantization: &Quantization,
    weights: &Weights,
) -> Result<(), LoadError> {
    let wanted = blueprint.manifest().0;
    let (mut missing, mut misshapen, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (name, want) in &wanted {
        let Some(found) = weights.get(name) else {
            missing.push(name.clone());
            continue;
        };
        known.insert(name.clone());
        let path = name.strip_suffix(".weight").unwrap_or(name);
        match weights.get(&format!("{path}.scales")) {
            None => {
                if !fits(found.shape(), want) {
                    misshapen.push(format!("{name} is {:?}, not {want:?}", found.shape()));
                }
            }
            Some(scales) => {
                known.insert(format!("{path}.scales"));
                let Some(choice) = quantization.at(path) else {
                    misshapen.push(format!("{name} is packed, but the config says nothing of `{path}`"));
                    continue;
                };
                let biases = weights.get(&format!("{path}.biases"));
                if biases.is_some() {
                    known.insert(format!("{path}.biases"));
                }
                let (packed, scaled) = packed_shapes(want, choice);
                let shapes_fit = fits(found.shape(), &packed)
                    && fits(scales.shape(), &scaled)
                    && biases.is_none_or(|biases| fits(biases.shape(), &scaled));
                if !shapes_fit || biases.is_some() != (choice.mode == QuantMode::Affine) {
                    let QuantizationChoice { group, bits, mode } = choice;
                    misshapen
                        .push(format!("{name} is not {want:?} in {bits} bits, groups of {group}, {mode:?}"));
                }
            }
        }
    }
    let unexpected: Vec<String> = weights.keys().filter(|name| !known.contains(*name)).cloned().collect();
    if missing.is_empty() && unexpected.is_empty() && misshapen.is_empty() {
        return Ok(());
    }
    Err(LoadError::Mismatch { missing, unexpected, misshapen })
}

/// The shapes of a packed weight (u32 words) and of its scales.
fn packed_shapes(want: &[usize], choice: QuantizationChoice) -> (Vec<usize>, Vec<usize>) {
    let (mut packed, mut scaled) = (want.to_vec(), want.to_vec());
    if let (Some(words), Some(groups)) = (packed.last_mut(), scaled.last_mut()) {
        *words = *words * choice.bits as usize / 32;
        *groups /= choice.group as usize;
    }
    (packed, scaled)
}

fn fits(found: &[i32], want: &[usize]) -> bool {
    found.len() == want.len() && found.iter().zip(want).all(|(found, want)| *found as usize == *want)
}
