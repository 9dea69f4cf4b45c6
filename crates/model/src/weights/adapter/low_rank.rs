//! An adapter's low-rank products by the blueprint's names, for layers that keep them beside their weights.

use std::collections::BTreeSet;

use mlx::{Array, Dtype};

use super::super::header::problem;
use super::{Adapter, Change};
use crate::quantization::Quantization;
use crate::rewrite::WeightRewrite;
use crate::weights::{LoadError, Weights};

/// The change of one module's weight: `up · down` is added to it.
pub(crate) struct LowRank {
    /// The module, by the blueprint's name.
    pub(crate) path: String,
    /// The module, by the adapter's name.
    pub(crate) published: String,
    /// `[rank, in]`, or `[experts, rank, in]`.
    pub(crate) down: Array,
    /// `[out, rank]`, or `[experts, out, rank]`; scaled.
    pub(crate) up: Array,
    /// The length of each row afterwards, `[out]` (DoRA).
    pub(crate) magnitude: Option<Array>,
}

/// What to do about an adapter that must be merged.
const MERGE: &str = "merge it with `--adapter-path DIRECTORY` or `omnibus convert --adapter-path DIRECTORY`";

impl Adapter {
    /// Its low-rank products. `rewrites`: from the checkpoint's names to the blueprint's. Fails for changes that can only
    /// be merged.
    pub(crate) fn low_rank(&self, rewrites: &[WeightRewrite]) -> Result<Vec<LowRank>, LoadError> {
        let mut found = Vec::new();
        for (path, change) in &self.changes {
            let refused = |why: &str| problem(&self.directory, format!("`{path}` {why}: {MERGE}"));
            if let Some(part) = change.replaced.keys().next() {
                return Err(refused(&format!("is replaced, `{part}` and perhaps more")));
            }
            let Some([down, up]) = &change.low_rank else { continue };
            if !matches!((down.ndim(), up.ndim()), (2, 2) | (3, 3)) {
                return Err(refused("has matrices of other than two axes"));
            }
            if down.ndim() == 3 && change.magnitude.is_some() {
                return Err(refused("is DoRA of stacked experts"));
            }
            let name = format!("{path}.weight");
            if rewrites.iter().any(|rewrite| rewrite.changes_values(&name)) {
                return Err(refused("is rewritten when the model is loaded"));
            }
            let scaled = (up.astype(Dtype::F32)? * self.config.scale(path)).astype(up.dtype()?)?;
            let rewritten = change.rewritten(path, down, scaled, rewrites);
            let why = |error| refused(&format!("is rewritten when the model is loaded ({error})"));
            found.extend(rewritten.map_err(why)?);
        }
        Ok(found)
    }
}

impl Change {
    /// The products of the modules that a published one becomes: they share its inputs, and each has some of its outputs.
    fn rewritten(
        &self,
        published: &str,
        down: &Array,
        up: Array,
        rewrites: &[WeightRewrite],
    ) -> Result<Vec<LowRank>, LoadError> {
        let name = |part: &str| format!("{published}.{part}");
        let mut tensors = Weights::from([(name("weight"), up)]);
        if let Some(magnitude) = &self.magnitude {
            // Outputs of biases follow those of weights.
            tensors.insert(name("bias"), magnitude.reshape(&[-1])?);
        }
        let names: BTreeSet<String> = tensors.keys().cloned().collect();
        for rewrite in rewrites {
            tensors = rewrite.apply(tensors, &names, &Quantization::default())?;
        }
        let paths: Vec<String> =
            tensors.keys().filter_map(|name| Some(name.strip_suffix(".weight")?.to_owned())).collect();
        let change = |path: String| {
            Some(LowRank {
                up: tensors.remove(&format!("{path}.weight"))?,
                magnitude: tensors.remove(&format!("{path}.bias")),
                down: down.clone(),
                published: published.to_owned(),
                path,
            })
        };
        Ok(paths.into_iter().filter_map(change).collect())
    }
}
