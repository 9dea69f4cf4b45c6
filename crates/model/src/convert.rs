//! Writes a checkpoint in mlx-lm's layout: quantized, cast or dequantized.
//!
//! Invariant: tensors are computed and written one by one, so that memory holds one of them at a time; a file has its
//! final name only when it is whole. Start at [`Conversion::run`].

mod config;
mod inverse;
mod layout;
mod mtp;
mod packing;
mod plan;
mod recipe;
mod weighted;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mlx::Dtype;
use serde_json::{Map, Value};

use crate::config::ConfigError;
use crate::decoder::Model;
use crate::error::Error;
use crate::input_squares::InputSquares;
use crate::ops::Kernels;
use crate::quantization::{Quantization, QuantizationChoice};
use crate::rewrite::WeightRewrite;
use crate::weights::{LoadError, Published, Source, Weights, published};
use crate::{encoders, families};

pub use recipe::Recipe;

use layout::Layout;
use packing::Module;
use plan::Plan;
use writer::Shards;

/// What becomes of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// They stay as they are: floats, or packed.
    AsStored,
    /// Weights that are floats are packed.
    Quantize {
        /// Unless the recipe or the architecture says otherwise.
        choice: QuantizationChoice,
        /// What differs by module.
        recipe: Recipe,
    },
    /// Packed ones become floats.
    Dequantize,
}

/// A checkpoint to write.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// Where it comes from.
    pub source: Source,
    /// The directory to write. One with an unfinished conversion of the same kind is completed.
    pub to: PathBuf,
    /// What becomes of the weights.
    pub packing: Packing,
    /// The inputs of the modules that are packed, so that errors count by what they change. Affine packing alone uses them.
    pub inputs: Option<InputSquares>,
    /// The type of floats; `None` is the config's.
    pub dtype: Option<Dtype>,
    /// Most bytes of a file; a larger tensor has a file of its own.
    pub shard_bytes: u64,
}

/// mlx-lm's limit for a file.
pub const SHARD_BYTES: u64 = 5 << 30;

/// The quantization that a config names.
type Section = Option<Map<String, Value>>;

/// A file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files that are whole.
    pub files_done: usize,
    /// All files.
    pub files_total: usize,
    /// Bytes of tensors that are written.
    pub bytes_done: u64,
    /// Bytes of all tensors.
    pub bytes_total: u64,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Bytes of tensors.
    pub bytes: u64,
    /// Elements of all tensors before packing.
    pub parameters: u64,
    /// Files that an earlier run had written.
    pub files_kept: usize,
}

impl Summary {
    /// As mlx-lm counts it.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.parameters.max(1) as f64
    }
}

impl Conversion {
    /// Writes config and weights. Files of the tokenizer are the caller's.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Summary, Error> {
        let config = self.source.config()?;
        let plan = Plan::new(self, &config)?;
        plan.claim(&self.to)?;
        let (modules, quantization) = self.modules(&config)?;
        let shards = Shards::plan(&modules, self.shard_bytes)?;
        let summary = shards.write(&self.to, modules, progress)?;
        self.write_mtp_head(&config)?;
        let config = config::converted(config, quantization.as_ref());
        write_json(&self.to.join("config.json"), &Value::Object(config))?;
        plan.finish(&self.to)?;
        Ok(summary)
    }

    /// How modules of the source are packed, if they are to be packed: they stay as they are, since packing what was rounded
    /// before would round it again.
    pub fn kept_packing(&self) -> Result<Option<String>, Error> {
        let config = self.source.config()?;
        let in_config =
            |error| Error::Config { file: self.source.path("config.json"), error: Box::new(error) };
        let quantization = Quantization::read(&config).map_err(in_config)?;
        let packs = matches!(self.packing, Packing::Quantize { .. });
        Ok(quantization.label().filter(|_| packs && quantization.default.is_some()))
    }

    /// The model that the written checkpoint would be. `to` is not used.
    pub fn load(&self, kernels: Kernels) -> Result<Model, Error> {
        let config = self.source.config()?;
        let (modules, quantization) = self.modules(&config)?;
        let config = config::converted(config, quantization.as_ref());
        let in_config =
            |error| Error::Config { file: self.source.path("config.json"), error: Box::new(error) };
        let blueprint = families::read(&config).map_err(in_config)?;
        let quantization = Quantization::read(&config).map_err(in_config)?;
        let weights: Weights =
            modules.into_iter().flat_map(|(name, module)| module.into_named(&name)).collect();
        Model::build(blueprint, quantization, weights, kernels)
    }

    /// The modules of the new checkpoint, lazy, and the quantization that its config names.
    fn modules(&self, config: &Map<String, Value>) -> Result<(BTreeMap<String, Module>, Section), Error> {
        let in_config =
            |error| Error::Config { file: self.source.path("config.json"), error: Box::new(error) };
        let mut blueprint = families::read(config).map_err(in_config)?;
        let quantization = Quantization::read(config).map_err(in_config)?;
        if !blueprint.rotated.is_empty() && self.packing != Packing::AsStored {
            let (field, found) = ("modules".to_owned(), "rotated".to_owned());
            let supported =
                "for another packing those that are not, because mlx-lm loads rotated ones with 2 bits alone";
            return Err(in_config(ConfigError::Unsupported {
                field,
                found,
                supported: supported.to_owned(),
            }));
        }
        let hears = encoders::audio::read(config).map_err(in_config)?.is_some();
        if hears && blueprint.has_cross_attention() {
            let (field, found) = ("model_type".to_owned(), "a model that only writes down speech".to_owned());
            let supported = "text models, whose layout mlx-lm has; serve this checkpoint as it is".to_owned();
            return Err(in_config(ConfigError::Unsupported { field, found, supported }));
        }
        let vocabularies = std::mem::take(&mut blueprint.media_vocabularies);
        let layout = Layout::of(config, &blueprint.rewrites, &blueprint.manifest());
        blueprint.rewrites = layout.rewrites.clone();
        // mlx-lm's checkpoints are for text.
        blueprint.rewrites.extend(vocabularies.iter().map(|vocabulary| WeightRewrite::Drop {
            tensors: format!("{}.{}.**", blueprint.names.root, vocabulary.path).into(),
        }));
        let weights = self.source.weights()?;
        let packed = layout.packed_tensors(&weights)?;
        let Published { weights, quantization, unread, .. } =
            published(&mut blueprint, quantization, weights, &layout.unread)?;
        let mut modules = packing::modules(weights.into_iter().chain(unread).collect(), &quantization);
        inverse::to_mlx_names(&mut modules, &layout)?;
        modules.extend(packed.into_iter().map(|(name, tensor)| (name, Module::of_floats(tensor))));
        let dtype = self.dtype.or_else(|| config::dtype(config));
        let mut recorded = config::Recorded::new(quantization.default);
        match self.packing {
            Packing::AsStored => packing::cast(&mut modules, &layout, dtype)?,
            Packing::Dequantize => {
                packing::dequantize(&mut modules)?;
                packing::cast(&mut modules, &layout, dtype)?;
                recorded = config::Recorded::default();
            }
            Packing::Quantize { choice, recipe } => {
                packing::cast(&mut modules, &layout, dtype)?;
                let layers = blueprint.stored_layer_count();
                let choices = recipe.choices(&modules, &layout, choice, layers).map_err(in_config)?;
                recorded.set_default(choice);
                packing::quantize(&mut modules, &choices, self.inputs.as_ref())?;
            }
        }
        let section = recorded.section(&modules);
        Ok((modules, section))
    }
}

fn write_json(path: &Path, value: &Value) -> Result<(), LoadError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| failed(path, &error))?;
    text.push('\n');
    fs::write(path, text).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> LoadError {
    LoadError::File { file: path.to_owned(), problem: error.to_string() }
}
