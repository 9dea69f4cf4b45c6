//! Random adapters in mlx-lm's format, for benchmarks: of every linear layer, in float32 as mlx-lm trains them.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use mlx::{Array, Dtype, random};
use omnibus_engine::{NamedAdapter, StartError};
use omnibus_model::{RandomWeights, families};

/// How many adapters, and how wide they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdapterLoad {
    /// Adapters that the streams take in turn.
    pub count: usize,
    /// Their rank.
    pub rank: usize,
}

/// Directories of random adapters, removed in the end.
pub(super) struct RandomAdapters {
    folder: PathBuf,
    count: usize,
}

impl RandomAdapters {
    /// Writes adapters for a model of this config.
    pub(super) fn write(config: &RandomWeights, load: AdapterLoad) -> Result<Self, StartError> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!("omnibus-bench-adapters-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let written = Self { folder, count: load.count };
        for index in 0..load.count {
            written.write_one(config, index, load.rank)?;
        }
        Ok(written)
    }

    /// As settings name them.
    pub(super) fn named(&self) -> Vec<NamedAdapter> {
        (0..self.count).map(|index| NamedAdapter::new(format!("adapter-{index}"), self.path(index))).collect()
    }

    fn path(&self, index: usize) -> PathBuf {
        self.folder.join(index.to_string())
    }

    fn write_one(&self, config: &RandomWeights, index: usize, rank: usize) -> Result<(), StartError> {
        let path = self.path(index);
        let failed = |error: std::io::Error| StartError::new(format!("{}: {error}", path.display()));
        let blueprint = families::read(config.config()).map_err(StartError::new)?;
        fs::create_dir_all(&path).map_err(failed)?;
        let mut tensors = Vec::new();
        for (seed, (name, shape)) in blueprint.manifest().0.iter().enumerate() {
            let (Some(module), [outputs, inputs]) = (name.strip_suffix(".weight"), shape.as_slice()) else {
                continue;
            };
            if !name.contains(".layers.") {
                continue;
            }
            let key = random::key((index * 1_000_000 + seed * 2) as u64).map_err(StartError::new)?;
            let matrix = |rows: usize, columns: usize| -> mlx::Result<Array> {
                let shape = [rows as i32, columns as i32];
                random::normal(&shape, Dtype::F32, 0.01, &key)
            };
            tensors.push((format!("{module}.lora_a"), matrix(*inputs, rank).map_err(StartError::new)?));
            tensors.push((format!("{module}.lora_b"), matrix(rank, *outputs).map_err(StartError::new)?));
        }
        let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        mlx::io::save_safetensors(path.join("adapters.safetensors"), named, []).map_err(StartError::new)?;
        let config =
            format!(r#"{{"fine_tune_type": "lora", "lora_parameters": {{"rank": {rank}, "scale": 20.0}}}}"#);
        fs::write(path.join("adapter_config.json"), config).map_err(failed)
    }
}

impl Drop for RandomAdapters {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}
