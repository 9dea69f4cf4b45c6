//! Exactly the tensors a blueprint names must be there, each in its shape, packed or not.

use std::collections::BTreeSet;

use mlx::{Array, Dtype, QuantMode};

use crate::manifest::Manifest;
use crate::quantization::{Quantization, QuantizationChoice, StoredScales};
use crate::weights::{LoadError, Weights};

const LISTED_MAX: usize = 12;

/// How the tensors of a checkpoint differ from those of a blueprint, each list by name.
#[derive(Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Difference {
    pub missing: Vec<String>,
    pub unexpected: Vec<String>,
    pub misshapen: Vec<String>,
    pub mistyped: Vec<String>,
}

/// One line that lists what is wrong, each list cut short where it would not end.
pub(super) fn listed(difference: &Difference) -> String {
    let Difference { missing, unexpected, misshapen, mistyped } = difference;
    let lists = [
        ("missing", missing),
        ("unexpected", unexpected),
        ("of another shape", misshapen),
        ("of another type", mistyped),
    ];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
        let shown: Vec<&str> = names.iter().take(LISTED_MAX).map(String::as_str).collect();
        let more = names.len().saturating_sub(LISTED_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{what}: {}{rest}", shown.join(", "))
    });
    lists.collect::<Vec<_>>().join("; ")
}

/// Fails with every difference between what a blueprint names and what the checkpoint has.
pub(crate) fn check(
    manifest: &Manifest,
    quantization: &Quantization,
    weights: &Weights,
) -> Result<(), LoadError> {
    let (mut difference, mut known) = (Difference::default(), BTreeSet::new());
    for (name, want) in &manifest.0 {
        let Some(found) = weights.get(name) else {
            difference.missing.push(name.clone());
            continue;
        };
        known.insert(name.clone());
        let path = name.strip_suffix(".weight").unwrap_or(name);
        let part = |part: &str| weights.get_key_value(&format!("{path}.{part}"));
        let (scales, biases) = (part("scales"), part("biases").filter(|_| part("scales").is_some()));
        known.extend([scales, biases].into_iter().flatten().map(|(name, _)| name.clone()));
        let Some((_, scales)) = scales else {
            if let Some(Some(choice)) = quantization.by_path.get(path) {
                let what = format!("{name} should have {choice} by the config, but there are no scales");
                difference.misshapen.push(what);
                continue;
            }
            if !fits(found.shape(), want) {
                difference.misshapen.push(format!("{name} is {:?}, not {want:?}", found.shape()));
            }
            difference.check_type(name, found, Stored::Floats)?;
            continue;
        };
        let Some(choice) = quantization.at(path) else {
            let why = if quantization.by_path.contains_key(path) {
                "the config says that it is not"
            } else {
                "the config has no `quantization`"
            };
            difference.misshapen.push(format!("{name} is packed, but {why}"));
            continue;
        };
        let (packed, scaled) = packed_shapes(want, choice);
        let affine = choice.mode == QuantMode::Affine;
        let shapes_fit = fits(found.shape(), &packed)
            && fits(scales.shape(), &scaled)
            && biases.is_none_or(|(_, biases)| fits(biases.shape(), &scaled));
        if !shapes_fit || biases.is_some() != affine {
            let stored = match stored_choice(want, found, scales)? {
                Some(stored) if stored != choice => format!("its tensors have {stored}"),
                _ => format!(
                    "its tensors are words {:?}, scales {:?} and {}",
                    found.shape(),
                    scales.shape(),
                    if biases.is_some() { "biases" } else { "no biases" },
                ),
            };
            difference
                .misshapen
                .push(format!("{name} should be {want:?} with {choice} by the config, but {stored}"));
        }
        difference.check_type(name, found, Stored::Words)?;
        let of_scales = if affine { Stored::Floats } else { Stored::Bytes };
        difference.check_type(&format!("{path}.scales"), scales, of_scales)?;
        if let Some((name, biases)) = biases {
            difference.check_type(name, biases, Stored::Floats)?;
        }
    }
    difference.unexpected = weights.keys().filter(|name| !known.contains(*name)).cloned().collect();
    if difference == Difference::default() { Ok(()) } else { Err(LoadError::Mismatch(difference)) }
}

/// Finds the packing of modules that the config does not name from their tensors, where its default does not fit them. So
/// does mlx-lm.
pub(crate) fn infer(
    manifest: &Manifest,
    quantization: &mut Quantization,
    weights: &Weights,
) -> Result<(), LoadError> {
    let Some(default) = quantization.default else { return Ok(()) };
    for (name, want) in &manifest.0 {
        let path = name.strip_suffix(".weight").unwrap_or(name);
        let (weight, scales) = (weights.get(name), weights.get(&format!("{path}.scales")));
        let (Some(weight), Some(scales)) = (weight, scales) else { continue };
        if quantization.by_path.contains_key(path) {
            continue;
        }
        if let Some(stored) = stored_choice(want, weight, scales)?.filter(|stored| *stored != default) {
            quantization.by_path.insert(path.to_owned(), Some(stored));
        }
    }
    Ok(())
}

/// The packing that the shapes of a module's tensors show.
fn stored_choice(want: &[usize], weight: &Array, scales: &Array) -> mlx::Result<Option<QuantizationChoice>> {
    let last = |shape: &[i32]| shape.last().copied().unwrap_or(0).max(0) as usize;
    let (inputs, words, groups) =
        (want.last().copied().unwrap_or(0), last(weight.shape()), last(scales.shape()));
    let mode = if scales.dtype()? == Dtype::U8 { StoredScales::Bytes } else { StoredScales::Floats };
    Ok(QuantizationChoice::of_shapes(inputs, words, groups, mode))
}

/// What a tensor's elements are.
#[derive(Clone, Copy)]
enum Stored {
    Floats,
    /// Codes in uint32 words.
    Words,
    /// Scales in bytes.
    Bytes,
}

impl Difference {
    fn check_type(&mut self, name: &str, tensor: &Array, want: Stored) -> mlx::Result<()> {
        let dtype = tensor.dtype()?;
        let (holds, want) = match want {
            Stored::Floats => {
                (matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64), "a float")
            }
            Stored::Words => (dtype == Dtype::U32, "uint32"),
            Stored::Bytes => (dtype == Dtype::U8, "uint8"),
        };
        if !holds {
            self.mistyped.push(format!("{name} is {dtype}, not {want}"));
        }
        Ok(())
    }
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
