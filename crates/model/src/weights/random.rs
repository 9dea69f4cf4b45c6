//! Random weights of a config, for benchmarks: made on the default device, lazily, so that no tensor is ever on the host.
//!
//! Invariant: equal configs give equal weights. Values keep activations finite and of order one; they mean nothing.

use std::path::PathBuf;
use std::sync::Arc;

use mlx::{Array, Dtype, random};
use serde_json::{Map, Value, json};

use super::LoadError;
use super::json::as_json;
use crate::config::ConfigError;
use crate::error::Error;
use crate::families;
use crate::manifest::Manifest;
use crate::quantization::{Quantization, QuantizationChoice};
use crate::weights::Weights;

/// Modules that mlx-lm quantizes with 8 bits in models that it converts with fewer: routers.
const ROUTERS: &[&str] = &["mlp.gate", "mlp.shared_expert_gate", "block_sparse_moe.gate"];
/// What mlx-lm quantizes a router with.
const ROUTER_BITS: usize = 8;
/// Elements that share a scale, mlx-lm's default.
const GROUP_SIZE: usize = 64;

/// A model of random weights: its config, and the tensors it needs.
#[derive(Debug, Clone)]
pub struct RandomWeights(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The config's path, or the name of a preset: what an error message names.
    name: String,
    config: Map<String, Value>,
    manifest: Manifest,
    quantization: Quantization,
    dtype: Dtype,
}

impl RandomWeights {
    /// `config`: the text of a config.json. `bits`: quantize with so many bits as `mlx_lm.convert` does, in place of what
    /// the config says. Fails as loading a model with this config would.
    pub fn new(name: &str, config: &str, bits: Option<usize>) -> Result<Self, Error> {
        let file = || PathBuf::from(name);
        let in_config = |error: ConfigError| Error::Config { file: file(), error: Box::new(error) };
        let mut config: Map<String, Value> = serde_json::from_str(&as_json(config)).map_err(|error| {
            LoadError::File { file: file(), problem: format!("not a JSON object: {error}") }
        })?;
        let manifest = families::read(&config).map_err(in_config)?.manifest();
        if let Some(bits) = bits {
            config.remove("quantization_config");
            config.insert("quantization".to_owned(), quantization(bits, &manifest));
        }
        let quantization = Quantization::read(&config).map_err(in_config)?;
        let dtype = match config.get("torch_dtype").or(config.get("dtype")).and_then(Value::as_str) {
            Some("float32") => Dtype::F32,
            Some("float16") => Dtype::F16,
            _ => Dtype::Bf16,
        };
        Ok(Self(Arc::new(Inner { name: name.to_owned(), config, manifest, quantization, dtype })))
    }

    /// The config's path, or the name of a preset.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The config, with its quantization.
    pub fn config(&self) -> &Map<String, Value> {
        &self.0.config
    }

    /// Whether unquantized tensors are float32.
    pub fn is_float32(&self) -> bool {
        self.0.dtype == Dtype::F32
    }

    /// Bytes of a tensor of the manifest, as it is stored.
    pub fn tensor_bytes(&self, name: &str, shape: &[usize]) -> u64 {
        let elements = shape.iter().product::<usize>() as u64;
        let float = self.0.dtype.size_of() as u64;
        match self.packing(name, shape) {
            None => elements * float,
            // A scale and a bias for each group; the scales of other modes are bytes.
            Some(choice) => {
                let scale = if choice.mode == mlx::QuantMode::Affine { 2 * float } else { 1 };
                elements * choice.bits as u64 / 8 + elements / choice.group as u64 * scale
            }
        }
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.0.manifest.0.iter().map(|(name, shape)| self.tensor_bytes(name, shape)).sum()
    }

    /// Every tensor, lazy.
    pub(super) fn weights(&self) -> mlx::Result<Weights> {
        self.weights_of(&self.0.manifest)
    }

    /// Every tensor of a network, lazy. Matrices are uniform with a variance of one over their inputs, weights of norms are ones.
    pub(crate) fn weights_of(&self, network: &Manifest) -> mlx::Result<Weights> {
        let mut weights = Weights::new();
        for (seed, (name, shape)) in network.0.iter().enumerate() {
            let tensor = self.tensor(name, shape, seed as u64)?;
            let Some(choice) = self.packing(name, shape) else {
                weights.insert(name.clone(), tensor);
                continue;
            };
            let path = name.strip_suffix(".weight").unwrap_or(name);
            let packed = tensor.quantize(choice.group, choice.bits, choice.mode)?;
            weights.insert(name.clone(), packed.weight);
            weights.insert(format!("{path}.scales"), packed.scales);
            if let Some(biases) = packed.biases {
                weights.insert(format!("{path}.biases"), biases);
            }
        }
        Ok(weights)
    }

    fn tensor(&self, name: &str, shape: &[usize], seed: u64) -> mlx::Result<Array> {
        let sizes: Vec<i32> = shape.iter().map(|size| *size as i32).collect();
        match shape {
            [_] if name.ends_with(".weight") => Array::ones(&sizes, self.0.dtype),
            [.., inputs] => {
                let bound = (3.0 / (*inputs).max(1) as f32).sqrt();
                random::uniform(&sizes, self.0.dtype, -bound..bound, &random::key(seed)?)
            }
            [] => Array::ones(&sizes, self.0.dtype),
        }
    }

    fn packing(&self, name: &str, shape: &[usize]) -> Option<QuantizationChoice> {
        // Norms of each head have two axes, too.
        let path = name.strip_suffix(".weight").filter(|path| !path.ends_with("norm"))?;
        let choice = self.0.quantization.at(path)?;
        is_matrix(shape, choice.group as usize).then_some(choice)
    }
}

/// Whether mlx-lm packs a tensor of this shape in groups of this size.
fn is_matrix(shape: &[usize], group: usize) -> bool {
    shape.len() > 1 && shape.last().is_some_and(|inputs| inputs.is_multiple_of(group))
}

/// The config's section for weights of `bits` bits; routers have more.
fn quantization(bits: usize, manifest: &Manifest) -> Value {
    let mut section = json!({"group_size": GROUP_SIZE, "bits": bits, "mode": "affine"});
    let paths = manifest.0.keys().filter_map(|name| name.strip_suffix(".weight"));
    for path in paths.filter(|path| ROUTERS.iter().any(|router| path.ends_with(router))) {
        section[path] = json!({"group_size": GROUP_SIZE, "bits": ROUTER_BITS.max(bits)});
    }
    section
}

#[cfg(test)]
mod tests {
    use crate::decoder::Model;
    use crate::ops::Kernels;
    use crate::weights::{RandomWeights, Source};

    const MOE: &str = r#"{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 160, "rms_norm_eps": 1e-6,
        "rope_theta": 1e4, "max_position_embeddings": 256, "tie_word_embeddings": false, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 64, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "norm_topk_prob": true, "torch_dtype": "float32"}"#;

    const NORMS_OF_HEADS: &str = r#"{"model_type": "rwkv7", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 128,
        "norm_eps": 1e-5, "head_dim": 64, "num_hidden_layers": 2, "a_low_rank_dim": 8, "v_low_rank_dim": 8,
        "gate_low_rank_dim": 16, "decay_low_rank_dim": 8, "tie_word_embeddings": false}"#;

    #[test]
    fn norms_of_each_head_are_not_packed() {
        let random = RandomWeights::new("tiny", NORMS_OF_HEADS, Some(4)).unwrap();
        let model = Model::load(&Source::Random(random), Kernels::Mlx).unwrap();
        assert_eq!(model.quantization().label().as_deref(), Some("4-bit"));
    }

    fn check(bits: Option<usize>, label: Option<&str>) {
        let random = RandomWeights::new("tiny", MOE, bits).unwrap();
        let weights = random.weights().unwrap();
        let bytes: usize = weights.values().map(mlx::Array::nbytes).sum();
        assert_eq!(random.bytes(), bytes as u64, "{bits:?}");
        let model = Model::load(&Source::Random(random), Kernels::Mlx).unwrap();
        assert_eq!(model.quantization().label().as_deref(), label);
    }

    #[test]
    fn random_weights_are_those_of_the_config() {
        check(None, None);
        check(Some(4), Some("4-bit+"));
        check(Some(8), Some("8-bit"));
    }

    #[test]
    fn a_config_that_cannot_be_loaded_is_refused() {
        let error = |config: &str| RandomWeights::new("c.json", config, None).unwrap_err().to_string();
        assert!(error("[]").starts_with("c.json: not a JSON object"), "{}", error("[]"));
        assert!(error(r#"{"model_type": "abacus"}"#).contains("model_type"), "{}", error("{}"));
    }
}
