//! An encoder's tensors of a checkpoint, under the blueprint's names.

use std::collections::BTreeSet;

use mlx::{Array, Dtype};
use serde_json::{Map, Value};

use super::blueprint::EncoderBlueprint;
use super::convolutions::channels_last;
use super::manifest::PATCHES;
use crate::config::ConfigError;
use crate::error::Error;
use crate::manifest::Manifest;
use crate::ops::Kernels;
use crate::pattern::Pattern;
use crate::quantization::Quantization;
use crate::rewrite::WeightRewrite;
use crate::weights::{LoadError, Source, Store, Weights, check, convert, infer};

impl EncoderBlueprint {
    /// The matrix `[out, side · side · hidden]` of a convolution over squares of rows, which is a linear layer over merged
    /// ones: `[out, hidden, side, side]` as published, channels last in MLX. Others stay as they are.
    fn merging_matrix(&self, name: &str, weight: &Array) -> Result<Array, LoadError> {
        let hidden = self.hidden as i32;
        let patch_by_patch = match *weight.shape() {
            [_, channels, y, x] if channels == hidden && y == x => weight.transpose(&[0, 2, 3, 1])?,
            [_, y, x, channels] if channels == hidden && y == x => weight.clone(),
            [_, _, _, _] => {
                return Err(LoadError::Shape {
                    name: name.to_owned(),
                    shape: weight.shape().to_vec(),
                    want: format!("a convolution over squares of rows of {hidden}"),
                });
            }
            _ => return Ok(weight.clone()),
        };
        Ok(patch_by_patch.flatten(1, -1)?)
    }

    /// Applies the rewrites, leaves out what is the text model's or behind the last layer, and checks that exactly the
    /// named tensors come out.
    pub(super) fn store(
        &self,
        mut quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Store, LoadError> {
        let mut weights = named(&self.rewrites, self.layers.len(), &mut quantization, weights)?;
        let first = match &self.convolutions {
            Some(_) => "encoder.conv_stem.conv.weight".to_owned(),
            None => format!("encoder.{PATCHES}.weight"),
        };
        if let (Some(weight), None) = (weights.get_mut(&first), &self.convolutions) {
            *weight = self.patches.matrix(&first, weight)?;
        }
        for (name, weight) in weights.iter_mut().filter(|(name, _)| name.starts_with("encoder.connector.")) {
            *weight = self.merging_matrix(name, weight)?;
        }
        let manifest = self.manifest();
        if self.convolutions.is_some() {
            channels_last(&mut weights, &manifest)?;
        }
        // The first product is rarely packed; norms never are.
        let stored = weights.get(&first).map(Array::dtype).transpose()?;
        checked((weights, manifest), quantization, kernels, (stored, self.hidden))
    }
}

/// The store of an encoder over exactly these tensors. `stored`: the dtype of some of its floats, which activations have.
pub(super) fn checked(
    (weights, manifest): (Weights, Manifest),
    mut quantization: Quantization,
    kernels: Kernels,
    (stored, hidden): (Option<Dtype>, usize),
) -> Result<Store, LoadError> {
    infer(&manifest, &mut quantization, &weights)?;
    check(&manifest, &quantization, &weights)?;
    let dtype = stored.filter(|dtype| matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32));
    let dtype = dtype.unwrap_or(Dtype::Bf16);
    Ok(Store::of_encoder((weights, manifest), quantization, kernels, dtype, hidden))
}

/// What `read` finds in a checkpoint's config, and how its tensors are packed. `None` if it finds nothing.
pub(super) fn described<B, Read>(source: &Source, read: Read) -> Result<Option<(B, Quantization)>, Error>
where
    Read: FnOnce(&Map<String, Value>) -> Result<Option<B>, ConfigError>,
{
    let config = source.config()?;
    let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
    let Some(blueprint) = read(&config).map_err(in_config)? else { return Ok(None) };
    Ok(Some((blueprint, Quantization::read(&config).map_err(in_config)?)))
}

/// A checkpoint's tensors after these rewrites, without those that are the text model's or behind the last layer.
pub(super) fn named(
    rewrites: &[WeightRewrite],
    layers: usize,
    quantization: &mut Quantization,
    weights: Weights,
) -> Result<Weights, LoadError> {
    let mut weights = convert(weights, quantization)?;
    let published: BTreeSet<String> = weights.keys().cloned().collect();
    for rewrite in rewrites {
        weights = rewrite.apply(weights, &published, quantization)?;
        rewrite.apply_to_paths(quantization);
    }
    let layer = Pattern::from("encoder.layers.#.**");
    weights.retain(|name, _| {
        let number = layer.captures(name).and_then(|captures| captures.number);
        name.starts_with("encoder.") && number.is_none_or(|number| number < layers)
    });
    Ok(weights)
}
