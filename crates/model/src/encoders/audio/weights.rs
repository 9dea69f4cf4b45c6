//! An audio encoder's tensors of a checkpoint, under the blueprint's names.

use mlx::Array;

use super::blueprint::AudioBlueprint;
use super::manifest::CONVOLUTIONS;
use crate::encoders::weights::{checked, named};
use crate::ops::Kernels;
use crate::quantization::Quantization;
use crate::weights::{LoadError, Store, Weights};

impl AudioBlueprint {
    /// Applies the rewrites, leaves out what is the text model's, and checks that exactly the named tensors come out.
    pub(super) fn store(
        &self,
        mut quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Store, LoadError> {
        let mut weights = named(&self.rewrites, self.layers.len(), &mut quantization, weights)?;
        let manifest = self.manifest();
        let mut stored = None;
        for conv in CONVOLUTIONS.map(|conv| format!("encoder.{conv}.weight")) {
            let (Some(weight), Some(wanted)) = (weights.get_mut(&conv), manifest.0.get(&conv)) else {
                continue;
            };
            *weight = channels_last(weight, wanted)?;
            stored = Some(weight.dtype()?);
        }
        // Convolutions are never packed.
        checked((weights, manifest), quantization, kernels, (stored, self.hidden))
    }
}

/// A convolution's weights as MLX has them, `[out, .., in]`, from those of torch, `[out, in, ..]`, or from themselves. Others
/// stay as they are.
fn channels_last(weight: &Array, wanted: &[usize]) -> Result<Array, LoadError> {
    let wanted: Vec<i32> = wanted.iter().map(|size| *size as i32).collect();
    let turned = match weight.ndim() {
        _ if weight.shape() == wanted.as_slice() => return Ok(weight.clone()),
        3 => weight.transpose(&[0, 2, 1])?,
        4 => weight.transpose(&[0, 2, 3, 1])?,
        _ => return Ok(weight.clone()),
    };
    Ok(if turned.shape() == wanted.as_slice() { turned.contiguous()? } else { weight.clone() })
}
