//! An encoder's tensors of a checkpoint, under the blueprint's names.

use std::collections::BTreeSet;

use mlx::{Array, Dtype};

use super::blueprint::EncoderBlueprint;
use super::manifest::PATCHES;
use crate::weights::{Store, check, convert, infer};
use crate::{Kernels, LoadError, Pattern, Quantization, Weights};

impl EncoderBlueprint {
    /// Applies the rewrites, leaves out what is the text model's or behind the last layer, and checks that exactly the
    /// named tensors come out.
    pub(super) fn store(
        &self,
        mut quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Store, LoadError> {
        let mut weights = convert(weights, &mut quantization)?;
        let published: BTreeSet<String> = weights.keys().cloned().collect();
        for rewrite in &self.rewrites {
            weights = rewrite.apply(weights, &published, &quantization)?;
            rewrite.apply_to_paths(&mut quantization);
        }
        let layer = Pattern::from("encoder.layers.#.**");
        weights.retain(|name, _| {
            let number = layer.captures(name).and_then(|captures| captures.number);
            name.starts_with("encoder.") && number.is_none_or(|number| number < self.layers.len())
        });
        let patches = format!("encoder.{PATCHES}.weight");
        if let Some(weight) = weights.get_mut(&patches) {
            *weight = self.patches.matrix(&patches, weight)?;
        }
        let manifest = self.manifest();
        infer(&manifest, &mut quantization, &weights)?;
        check(&manifest, &quantization, &weights)?;
        // Patches are rarely packed; norms never are.
        let stored = weights.get(&patches).map(Array::dtype).transpose()?;
        let dtype = stored.filter(|dtype| matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32));
        Ok(Store::of_encoder(weights, quantization, kernels, dtype.unwrap_or(Dtype::Bf16), self.hidden))
    }
}
