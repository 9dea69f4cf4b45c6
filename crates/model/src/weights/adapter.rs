//! Adapters: LoRA, DoRA and full fine-tunes in mlx-lm's and PEFT's formats, merged into a checkpoint's weights.
//!
//! Invariant: a tensor of the adapter that changes nothing is an error. Packed weights that an adapter changes become
//! floats, since packing them again would round the change away.

mod config;
mod low_rank;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mlx::{Array, Dtype, QuantMode, Quantized};
use serde_json::{Map, Value};

use super::header::{check_header, problem};
use crate::quantization::Quantization;
use crate::weights::{LoadError, Weights};
use config::AdapterConfig;
pub(crate) use low_rank::LowRank;

/// Files with an adapter's tensors: mlx-lm's and PEFT's.
const FILES: &[&str] = &["adapters.safetensors", "adapter_model.safetensors"];

/// The files that an adapter consists of.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let all = FILES.iter().chain(&["adapter_config.json"]).map(|name| directory.join(name));
    all.filter(|file| file.is_file()).collect()
}

/// An adapter, read.
pub(crate) struct Adapter {
    directory: PathBuf,
    config: AdapterConfig,
    changes: BTreeMap<String, Change>,
}

/// What an adapter does to a module.
#[derive(Default)]
struct Change {
    /// Adds the product of two narrow matrices.
    low_rank: Option<[Array; 2]>,
    /// The length of each row afterwards (DoRA).
    magnitude: Option<Array>,
    /// Tensors that replace those of the module, by their last name.
    replaced: Weights,
}

impl Adapter {
    pub(crate) fn read(directory: &Path) -> Result<Self, LoadError> {
        let config = AdapterConfig::read(&directory.join("adapter_config.json"))?;
        let file = FILES.iter().map(|name| directory.join(name)).find(|file| file.is_file());
        let file =
            file.ok_or_else(|| problem(directory, format!("holds neither {}", FILES.join(" nor "))))?;
        check_header(&file)?;
        let mut changes: BTreeMap<String, Change> = BTreeMap::new();
        for (name, tensor) in mlx::io::load_safetensors(&file)? {
            let (path, part) = config::parts(&name)
                .ok_or_else(|| problem(&file, format!("`{name}` is not a tensor of an adapter")))?;
            let change = changes.entry(path).or_default();
            match part {
                config::Part::Replaced(last) => _ = change.replaced.insert(last, tensor),
                config::Part::Magnitude => change.magnitude = Some(tensor),
                // PEFT has matrices as they multiply columns, mlx-lm as they multiply rows, except those of experts.
                config::Part::Down(layout) => change.set(0, layout.turned(tensor)?),
                config::Part::Up(layout) => change.set(1, layout.turned(tensor)?),
            }
        }
        if let Some((path, _)) = changes.iter().find(|(_, change)| change.is_half()) {
            return Err(problem(&file, format!("`{path}` has one matrix of two")));
        }
        check_claims(&config, &changes)
            .map_err(|claim| problem(&directory.join("adapter_config.json"), claim))?;
        Ok(Self { directory: directory.to_owned(), config, changes })
    }

    /// Paths of modules whose packed weights become floats.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        self.changes
            .iter()
            .filter(|(_, change)| change.changes_weight())
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Merges the adapter into weights, which are packed as `quantization` says.
    pub(crate) fn merge(&self, weights: &mut Weights, quantization: &Quantization) -> Result<(), LoadError> {
        let absent: Vec<&str> = self
            .changes
            .iter()
            .filter(|(path, change)| !change.is_for(path, weights))
            .map(|(path, _)| path.as_str())
            .collect();
        if !absent.is_empty() {
            let shown = absent.iter().take(6).copied().collect::<Vec<_>>().join(", ");
            return Err(problem(
                &self.directory,
                format!("is for modules that the model has not, {} in all: {shown}", absent.len()),
            ));
        }
        for (path, change) in &self.changes {
            change
                .merge(path, self.config.scale(path), weights, quantization)
                .map_err(|error| problem(&self.directory, format!("does not fit `{path}`: {error}")))?;
        }
        Ok(())
    }
}

/// Fails with the field of the config that the tensors contradict.
fn check_claims(config: &AdapterConfig, changes: &BTreeMap<String, Change>) -> Result<(), String> {
    let mut paths = Vec::new();
    for (path, change) in changes {
        let Some([down, _]) = &change.low_rank else { continue };
        let rank = down.shape().iter().rev().nth(1).map_or(0, |rank| *rank as usize);
        config.check(path, rank, change.magnitude.is_some())?;
        paths.push(path.as_str());
    }
    config.check_targets(&paths)
}

impl Change {
    fn set(&mut self, index: usize, matrix: Array) {
        let pair = self.low_rank.get_or_insert_with(|| {
            // An empty matrix stands for one that has not come yet.
            let none = Array::from_slice::<f32>(&[], &[0]);
            [none.clone(), none].map(|array| array.unwrap_or_else(|_| matrix.clone()))
        });
        if let Some(place) = pair.get_mut(index) {
            *place = matrix;
        }
    }

    fn is_half(&self) -> bool {
        self.low_rank.as_ref().is_some_and(|pair| pair.iter().any(|matrix| matrix.size() == 0))
            || (self.magnitude.is_some() && self.low_rank.is_none())
    }

    fn changes_weight(&self) -> bool {
        self.low_rank.is_some() || self.replaced.contains_key("weight")
    }

    fn is_for(&self, path: &str, weights: &Weights) -> bool {
        let has = |part: &str| weights.contains_key(&format!("{path}.{part}"));
        (self.low_rank.is_none() || has("weight")) && self.replaced.keys().all(|part| has(part))
    }

    fn merge(
        &self,
        path: &str,
        scale: f32,
        weights: &mut Weights,
        quantization: &Quantization,
    ) -> mlx::Result<()> {
        if self.changes_weight() {
            unpack(path, weights, quantization)?;
        }
        for (part, tensor) in &self.replaced {
            weights.insert(format!("{path}.{part}"), tensor.clone());
        }
        let (Some([down, up]), Some(weight)) = (&self.low_rank, weights.get_mut(&format!("{path}.weight")))
        else {
            return Ok(());
        };
        let wide = |array: &Array| array.astype(Dtype::F32);
        let delta = (wide(up)? * scale).matmul(&wide(down)?)?;
        // Of embeddings, the first matrix has the rows of the table.
        let delta = if delta.shape() == weight.shape() { delta } else { delta.swapaxes(-1, -2)? };
        if delta.shape() != weight.shape() {
            return Err(mlx::Error::new(format!("{:?} is not {:?}", delta.shape(), weight.shape())));
        }
        let mut merged = wide(weight)? + delta;
        if let Some(magnitude) = &self.magnitude {
            let length = merged.square()?.sum_keepdims(&[-1])?.sqrt()?;
            merged = merged * (wide(magnitude)?.reshape(&[-1, 1])? / length);
        }
        *weight = merged.astype(weight.dtype()?)?;
        Ok(())
    }
}

/// Makes a packed module one of floats.
fn unpack(path: &str, weights: &mut Weights, quantization: &Quantization) -> mlx::Result<()> {
    let part = |part: &str| format!("{path}.{part}");
    let (scales, biases) = (weights.remove(&part("scales")), weights.remove(&part("biases")));
    let (Some(scales), Some(choice), Some(weight)) =
        (scales, quantization.at(path), weights.get(&part("weight")).cloned())
    else {
        return Ok(());
    };
    let dtype = if choice.mode == QuantMode::Affine { scales.dtype()? } else { Dtype::Bf16 };
    let (group, bits, mode) = (choice.group, choice.bits, choice.mode);
    let floats = Quantized { weight, scales, biases, group, bits, mode }.dequantize(dtype)?;
    weights.insert(part("weight"), floats);
    Ok(())
}

/// A config in which these modules are floats.
pub(crate) fn without_packing(
    mut config: Map<String, Value>,
    paths: &BTreeSet<String>,
) -> Map<String, Value> {
    for field in ["quantization", "quantization_config"] {
        if let Some(Value::Object(section)) = config.get_mut(field) {
            section.extend(paths.iter().map(|path| (path.clone(), Value::Bool(false))));
        }
    }
    config
}
