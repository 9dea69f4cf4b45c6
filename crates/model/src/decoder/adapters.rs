//! Loading named adapters beside a model's weights, and unloading them.

use std::collections::BTreeSet;
use std::path::Path;

use mlx::Array;

use super::Model;
use crate::batch::AdapterId;
use crate::ops::LowRankStack;
use crate::weights::{Adapter, LoadError, LowRank, adapter_id};

/// Names that an error lists.
const LISTED_MAX: usize = 6;

impl Model {
    /// Loads an adapter beside the weights: segments of a batch name it by the result. Fails, without a change, where it
    /// is not for this model, and where it can only be merged.
    pub fn load_adapter(&self, directory: &Path) -> Result<AdapterId, LoadError> {
        let id = adapter_id(directory)?;
        if self.has_adapter(id) {
            return Ok(id);
        }
        let mut changes = Adapter::read(directory)?.low_rank(&self.blueprint.rewrites)?;
        self.check_adapter(directory, &changes)?;
        for change in &mut changes {
            for matrix in [&mut change.down, &mut change.up] {
                *matrix = self.as_read(matrix)?;
            }
        }
        let loaded = self.adapters.loaded().len();
        let layers = self.adapters.layers();
        let stacks = layers.iter().map(|layer| layer.with_adapter(&changes, loaded));
        let stacks = stacks.collect::<mlx::Result<Vec<_>>>()?;
        self.check_adapter_bytes(directory, stacks.iter().flatten().map(LowRankStack::bytes).sum())?;
        for stack in stacks.iter().flatten() {
            stack.evaluate()?;
        }
        layers.iter().zip(stacks).for_each(|(layer, stack)| layer.set_stack(stack));
        self.adapters.push(id);
        Ok(id)
    }

    /// Unloads an adapter, if it is loaded.
    pub fn unload_adapter(&self, id: AdapterId) -> Result<(), LoadError> {
        let Some(place) = self.adapters.loaded().iter().position(|loaded| *loaded == id) else {
            return Ok(());
        };
        let left = self.adapters.loaded().len() - 1;
        let layers = self.adapters.layers();
        let stacks = layers.iter().map(|layer| layer.without_adapter(place, left));
        let stacks = stacks.collect::<mlx::Result<Vec<_>>>()?;
        for stack in stacks.iter().flatten() {
            stack.evaluate()?;
        }
        layers.iter().zip(stacks).for_each(|(layer, stack)| layer.set_stack(stack));
        self.adapters.remove(id);
        Ok(())
    }

    /// Whether an adapter is loaded.
    pub fn has_adapter(&self, id: AdapterId) -> bool {
        self.adapters.loaded().contains(&id)
    }

    /// Bytes of the loaded adapters' matrices.
    pub fn adapter_bytes(&self) -> u64 {
        self.adapters
            .layers()
            .iter()
            .filter_map(|layer| layer.stack().as_ref().map(LowRankStack::bytes))
            .sum()
    }

    /// Refuses adapters from here on whose load takes more than this for all adapters' matrices, those before and those
    /// after it. What is loaded stays.
    pub fn limit_adapter_bytes(&self, bytes: u64) {
        self.adapters.bytes_max.set(Some(bytes));
    }

    /// `after`: bytes of all matrices with one more adapter.
    fn check_adapter_bytes(&self, directory: &Path, after: u64) -> Result<(), LoadError> {
        let needed = self.adapter_bytes() + after;
        let Some(most) = self.adapters.bytes_max.get().filter(|most| needed > *most) else { return Ok(()) };
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        let (needed, most) = (gigabytes(needed), gigabytes(most));
        let problem = format!(
            "takes {needed:.3} GB while it is loaded, with the adapters that are, and --adapter-memory is {most:.3} GB: \
             unload another, or raise it"
        );
        Err(LoadError::File { file: directory.to_owned(), problem })
    }

    /// A matrix in a dtype that the kernels read.
    fn as_read(&self, matrix: &Array) -> mlx::Result<Array> {
        if self.ops.reads_dense(matrix.dtype()?) && self.kernels.on_cpu() {
            return Ok(matrix.clone());
        }
        matrix.astype(self.dtype)
    }

    /// Every change must be for a linear layer of the model, and have its sizes.
    fn check_adapter(&self, directory: &Path, changes: &[LowRank]) -> Result<(), LoadError> {
        let refused = |problem: String| LoadError::File { file: directory.to_owned(), problem };
        let layers = self.adapters.layers();
        let known: BTreeSet<&str> = layers.iter().flat_map(|layer| layer.paths()).collect();
        let unknown: Vec<&LowRank> =
            changes.iter().filter(|change| !known.contains(change.path.as_str())).collect();
        let manifest = self.blueprint.manifest();
        if let Some(merged) =
            unknown.iter().find(|change| manifest.0.contains_key(&format!("{}.weight", change.path)))
        {
            let why = "is not a layer whose adapters are kept beside its weights: merge the adapter with \
                       `--adapter-path DIRECTORY`";
            return Err(refused(format!("`{}` {why}", merged.published)));
        }
        if !unknown.is_empty() {
            let shown: Vec<&str> =
                unknown.iter().take(LISTED_MAX).map(|change| change.published.as_str()).collect();
            let (count, shown) = (unknown.len(), shown.join(", "));
            return Err(refused(format!("is for modules that the model has not, {count} in all: {shown}")));
        }
        if changes.is_empty() {
            return Err(refused("changes no weight".to_owned()));
        }
        for change in changes {
            for layer in &layers {
                if let Some(misfit) = layer.misfit(change)? {
                    return Err(refused(format!("`{}` {misfit}", change.published)));
                }
            }
        }
        Ok(())
    }
}
