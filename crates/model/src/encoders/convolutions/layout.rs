//! Weights of convolutions as MLX has them: torch's are `[out, in, kernel, kernel]`.
//!
//! Invariant: all convolutions of a checkpoint have one layout. Some shapes fit both, so the others decide.

use mlx::Array;

use crate::manifest::Manifest;
use crate::weights::{LoadError, Weights};

/// Turns those of `weights` that `manifest` names; others stay as they are.
pub(in crate::encoders) fn channels_last(
    weights: &mut Weights,
    manifest: &Manifest,
) -> Result<(), LoadError> {
    let wanted = |name: &str| {
        let shape: Vec<i32> = manifest.0.get(name)?.iter().map(|side| *side as i32).collect();
        match *shape {
            [out, inputs] => Some([out, 1, 1, inputs]),
            [out, rows, columns, inputs] => Some([out, rows, columns, inputs]),
            _ => None,
        }
    };
    let is_convolution = |name: &str, weight: &Array| weight.ndim() == 4 && wanted(name).is_some();
    let is_as_wanted =
        |(name, weight): (&String, &Array)| wanted(name).is_none_or(|wanted| weight.shape() == wanted);
    let are_last = weights.iter().filter(|(name, weight)| is_convolution(name, weight)).all(is_as_wanted);
    for (name, weight) in weights.iter_mut() {
        let (4, Some(wanted)) = (weight.ndim(), wanted(name)) else { continue };
        let turned = if are_last { weight.clone() } else { weight.transpose(&[0, 2, 3, 1])? };
        if turned.shape() != wanted {
            continue; // The check names it.
        }
        *weight = match manifest.0.get(name).map(Vec::len) {
            Some(2) => turned.reshape(&[wanted[0], wanted[3]])?,
            _ => turned.contiguous()?,
        };
    }
    Ok(())
}
