//! Golden logits: generates a fixture's weights, runs the model in every way the engine does, and
//! says how far the logits are from the reference's.
//!
//! A fixture is a directory with `config.json`, `tensors.json` (a recipe for the weights),
//! `golden.safetensors` (prompts and logits) and, when quantized, `packed.safetensors`; its format
//! is described in `tests/fixtures/README.md`.

pub mod embedders;
pub mod generate;
pub mod pictures;
pub mod ways;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mlx::{Array, Dtype};
use omnibus_model::mrope::MultimodalPositions;
use omnibus_model::{AdapterId, Kernels, Model, ModelPart, Quantization, Weights, families};
use serde_json::{Map, Value};

/// Fixtures whose model rounds its own activations: when roundings turn over, the logits move further than the reference's one
/// sample of its `sensitivity` says. `muse_spark` rounds what its head reads to bf16. With weights that are moved by their last
/// bit (`cargo xtask parity --only muse_spark --perturb SEED`), its logits move by 2e-7 to 3e-4.
const ROUNDED: [(&str, f32); 1] = [("muse_spark", 1e-3)];

/// One fixture, read.
pub struct Fixture {
    pub name: String,
    pub config: Map<String, Value>,
    pub prompts: Vec<Prompt>,
    /// Largest allowed distance with activations in float32, relative to the largest logit.
    pub bound: f32,
    directory: PathBuf,
}

/// A prompt, what follows it, and the logits after it and after each token that follows.
pub struct Prompt {
    pub tokens: Vec<i32>,
    pub decode: Vec<i32>,
    /// `[1 + decode.len()][vocab]`
    pub logits: Vec<Vec<f32>>,
    /// The adapter that computed them, where it is kept beside the weights.
    pub adapter: Option<AdapterId>,
    /// Its pictures, if it has some.
    pub media: Option<PromptMedia>,
}

/// The features that stand in a prompt.
#[derive(Clone)]
pub struct PromptMedia {
    /// Of models with multimodal rotary positions.
    pub positions: Option<MultimodalPositions>,
    /// Places of features in the prompt, in their order.
    pub places: Vec<usize>,
    /// `[places, hidden]`
    pub features: Array,
    pub deepstack: Vec<Array>,
    /// Pictures that rows attend to in layers of cross attention, and nothing takes the place of: positions of these rows, and
    /// the encoder's rows.
    pub crossed: Vec<(Range<usize>, Array)>,
}

impl PromptMedia {
    /// Places of features without tokens between them.
    pub fn runs(&self) -> Vec<Range<usize>> {
        let runs = self.places.chunk_by(|place, next| place + 1 == *next);
        runs.filter_map(|run| Some(*run.first()?..run.last()? + 1)).collect()
    }
}

impl Fixture {
    pub fn read(directory: &Path) -> Result<Self, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
        let config = std::fs::read(directory.join("config.json")).map_err(|error| say(&error))?;
        let config = serde_json::from_slice(&config).map_err(|error| say(&error))?;
        let golden = directory.join("golden.safetensors");
        let tensors = mlx::io::load_safetensors(&golden).map_err(|error| say(&error))?;
        let tensors: BTreeMap<String, Array> = tensors.into_iter().collect();
        let bytes = std::fs::read(&golden).map_err(|error| say(&error))?;
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).map_err(|error| say(&error))?;
        let metadata = metadata.metadata().clone().unwrap_or_default();
        let sensitivity: f32 = metadata.get("sensitivity").and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let prompts = (0..)
            .map_while(|index| tensors.get(&format!("prompt.{index}")).map(|prompt| (index, prompt)))
            .map(|(index, prompt)| {
                let ids = |array: &Array| array.to_vec::<i32>().map_err(|error| say(&error));
                // Where mlx-lm has a defect in its masks, the fixture has its logits with the defect repaired, too.
                let fixed = format!("logits_fixed.{index}");
                let logits = if tensors.contains_key(&fixed) { fixed } else { format!("logits.{index}") };
                let [rows, vocab] = tensors[&logits].dims().map_err(|error| say(&error))?;
                let logits = tensors[&logits].to_vec::<f32>().map_err(|error| say(&error))?;
                let logits: Vec<_> = logits.chunks(vocab as usize).map(<[f32]>::to_vec).collect();
                assert_eq!(logits.len(), rows as usize);
                Ok(Prompt {
                    adapter: None,
                    tokens: ids(prompt)?,
                    decode: ids(&tensors[&format!("decode.{index}")])?,
                    logits,
                    media: None,
                })
            })
            .collect::<Result<Vec<_>, String>>()?;
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let rounded = ROUNDED.iter().find(|(rounded, _)| *rounded == name).map(|(_, bound)| *bound);
        let bound = rounded.unwrap_or((20.0 * sensitivity).max(1e-4));
        Ok(Self { name, config, prompts, bound, directory: directory.to_owned() })
    }

    /// The largest allowed distance of this model's logits: half-width activations, which only GPUs have, round more than
    /// the reference's float32.
    pub fn bound_of(&self, model: &Model) -> f32 {
        let unit_roundoff = match model.dtype() {
            Dtype::F16 => 2f32.powi(-11),
            Dtype::Bf16 => 2f32.powi(-8),
            _ => 0.0,
        };
        self.bound.max(8.0 * unit_roundoff)
    }

    /// The fixture's model, with generated weights.
    pub fn model(&self, kernels: Kernels) -> Result<Model, String> {
        self.model_of(self.weights()?, kernels)
    }

    /// The fixture's model over other weights.
    pub fn model_of(&self, weights: Weights, kernels: Kernels) -> Result<Model, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let blueprint = families::read(&self.config).map_err(|error| say(&error))?;
        let quantization = Quantization::read(&self.config).map_err(|error| say(&error))?;
        Model::build(blueprint, quantization, weights, kernels).map_err(|error| say(&error))
    }

    /// What one of several processes computes of the fixture's model.
    #[allow(dead_code, reason = "the example has no ranks")]
    pub fn part(&self, kernels: Kernels, part: ModelPart) -> Result<Model, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let blueprint = families::read(&self.config).map_err(|error| say(&error))?;
        let quantization = Quantization::read(&self.config).map_err(|error| say(&error))?;
        Model::build_part(blueprint, quantization, self.weights()?, kernels, part)
            .map_err(|error| say(&error))
    }

    /// Its weights, generated or packed.
    pub fn weights(&self) -> Result<Weights, String> {
        self.weights_of(self.recipe()?)
    }

    /// Weights that the reference has not seen: what is packed is the same, the rest is generated from another seed.
    #[allow(dead_code, reason = "the example compares with the reference")]
    pub fn weights_of_seed(&self, seed: u64) -> Result<Weights, String> {
        let mut recipe = self.recipe()?;
        recipe["seed"] = seed.into();
        self.weights_of(recipe)
    }

    fn recipe(&self) -> Result<Value, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let recipe = std::fs::read(self.directory.join("tensors.json")).map_err(|error| say(&error))?;
        serde_json::from_slice(&recipe).map_err(|error| say(&error))
    }

    fn weights_of(&self, recipe: Value) -> Result<Weights, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let mut weights = generate::weights(&recipe).map_err(|error| say(&error))?;
        let packed = self.directory.join("packed.safetensors");
        if packed.is_file() {
            weights.extend(mlx::io::load_safetensors(&packed).map_err(|error| say(&error))?);
        }
        Ok(weights)
    }
}

/// Every fixture below a directory, in name order; only those that `wanted` names, if it names any.
pub fn fixtures(directory: &Path, wanted: &[String]) -> Result<Vec<PathBuf>, String> {
    let entries =
        std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("golden.safetensors").is_file())
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            wanted.is_empty() || wanted.contains(&name)
        })
        .collect();
    paths.sort();
    Ok(paths)
}
