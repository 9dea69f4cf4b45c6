//! The architectures that are read: llama.cpp's name, the name in `config.json`, and how their tensors differ.
//!
//! Start at [`ARCHITECTURES`].
//!
//! Source: llama.cpp `gguf-py/gguf/constants.py` (names) and `conversion/` (what is changed on the way into a file).

mod names;
mod table;

use crate::error::Problem;
use crate::metadata::Metadata;

use names::{NAMES, TOP};
pub use table::ARCHITECTURES;
use table::{DEEPSEEK_V2, MINISTRAL3, MIXTRAL};

/// What the rows of a rotation's projections look like in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryRows {
    /// As in the published checkpoint.
    AsPublished,
    /// Both elements of a pair side by side.
    SideBySide,
}

/// Which head of values comes first in projections of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueHeads {
    /// All of the first key's, as in the published checkpoint.
    ByKey,
    /// The first one of each key.
    Tiled,
}

/// Whether norms are stored with a one that the checkpoint leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norms {
    /// As in the published checkpoint.
    AsPublished,
    /// `weight + 1`, where the checkpoint has `weight`.
    PlusOne,
}

/// How norms are computed: where the file says their epsilon, and the field of `config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epsilon {
    /// The key without its prefix.
    pub key: &'static str,
    /// The field.
    pub field: &'static str,
}

/// Which floats activations need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// What the file has.
    OfFile,
    /// bfloat16's: activations exceed float16. Source: llama.cpp `src/llama-graph.cpp` (GLM-4), vLLM `deepseek_v2.py`.
    Bf16,
}

/// Fields of `config.json` that only some architectures have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// None.
    Nothing,
    /// Gemma's activation.
    Gemma,
    /// Windows and capped scores.
    Gemma2,
    /// Windows with a rotation of their own.
    Gemma3,
    /// Routed experts as Qwen's.
    QwenExperts,
    /// Routed experts as Mixtral's.
    Mixtral,
    /// Windows and routed experts of gpt-oss.
    GptOss,
    /// Granite's factors.
    Granite,
    /// Some layers without a rotation.
    SmolLm3,
    /// Which projections have a bias, in the words of Seed-OSS.
    SeedOss,
    /// Whether projections have a bias, in the words of ERNIE.
    Ernie,
    /// Whether projections of attention have a bias.
    AttentionBias,
    /// Routed experts and one that computes every token, as Qwen1.5's and Qwen2's.
    Qwen2Experts,
    /// A part of each head rotates, and queries, keys and values may have a bias.
    Glm4,
    /// Routed experts as DeepSeek names them, and GLM's heads.
    Glm4Experts,
    /// Layers with a window, which alone rotate.
    Exaone4,
    /// Command R's factor of logits, biases and norms of queries.
    Cohere,
    /// Command R's factor of logits, and windows.
    Cohere2,
    /// Biases everywhere.
    StarCoder2,
    /// A part of each head rotates.
    PartialRotation,
    /// Whether queries and keys are normalized.
    Hunyuan,
    /// A rotation whose queries grow with their position.
    Ministral3,
    /// Which layers are convolutions.
    Lfm2,
    /// Layers with linear attention, and routed experts, in the words of Qwen3-Next.
    Qwen3Next,
    /// Layers with linear attention.
    Qwen35,
    /// Layers with linear attention, and routed experts.
    Qwen35Experts,
    /// Latent attention, and routed experts.
    DeepSeek,
}

/// Names by llama.cpp's names.
pub type Names = &'static [(&'static str, &'static str)];

/// An architecture.
#[derive(Debug)]
pub struct Architecture {
    /// llama.cpp's name, the prefix of its metadata.
    pub name: &'static str,
    /// `model_type`.
    pub model_type: &'static str,
    /// `architectures`.
    pub class: &'static str,
    /// Of queries and keys.
    pub rotary_rows: RotaryRows,
    /// Of linear attention.
    pub value_heads: ValueHeads,
    /// Of all norms.
    pub norms: Norms,
    /// Of all norms.
    pub epsilon: Epsilon,
    /// Of activations.
    pub range: Range,
    /// Further fields.
    pub extra: Extra,
    /// What is in front of all names.
    pub prefix: &'static str,
    /// Modules of layers that differ from the common ones, or are not among them.
    pub names: &'static [Names],
    /// Modules outside of layers, likewise.
    pub top: Names,
    /// Tensors of layers that are no weight and no bias of a module.
    pub tensors: Names,
}

/// The number of the function that chooses experts by a sigmoid.
pub const SIGMOID: usize = 2;

/// Where a tensor belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `model.layers.3.self_attn.q_proj`, or the whole name of a tensor that no module has.
    pub module: String,
    /// `weight` or `bias`; nothing where `module` is the whole name.
    pub suffix: Option<&'static str>,
}

/// The number of a tensor's layer and its name there.
pub fn layer(tensor: &str) -> Option<(usize, &str)> {
    let (layer, part) = tensor.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

impl Architecture {
    /// The architecture with llama.cpp's name. Models of several architectures share some of the names.
    pub fn of(name: &str, metadata: Metadata) -> Result<Option<&'static Self>, Problem> {
        let is_above_zero = |key: &str| -> Result<bool, Problem> {
            Ok(metadata.number(&format!("{name}.{key}"))?.is_some_and(|number| number > 0.0))
        };
        Ok(match name {
            "llama" if is_above_zero("expert_count")? => Some(&MIXTRAL),
            // Files of V2 came before others that said how experts are chosen.
            "deepseek2"
                if !is_above_zero("expert_count")?
                    || metadata.count("deepseek2.expert_gating_func")? == Some(SIGMOID) =>
            {
                by_name(name)
            }
            "deepseek2" => Some(&DEEPSEEK_V2),
            "mistral3" if is_above_zero("attention.temperature_scale")? => Some(&MINISTRAL3),
            _ => by_name(name),
        })
    }

    /// Where a tensor belongs.
    pub fn place(&self, tensor: &str) -> Option<Place> {
        let layer = layer(tensor);
        let part = layer.map_or(tensor, |(_, part)| part);
        if let Some((layer, _)) = layer
            && let Some(name) = find(part, self.tensors)
        {
            return Some(Place { module: self.in_layer(layer, name), suffix: None });
        }
        let (part, suffix) = part.rsplit_once('.')?;
        let suffix = ["weight", "bias"].into_iter().find(|known| *known == suffix)?;
        let module = match layer {
            Some((layer, _)) => {
                self.in_layer(layer, self.names.iter().chain([&NAMES]).find_map(|names| find(part, names))?)
            }
            None => format!("{}{}", self.prefix, find(part, self.top).or_else(|| find(part, TOP))?),
        };
        Some(Place { module, suffix: Some(suffix) })
    }

    fn in_layer(&self, layer: usize, name: &str) -> String {
        format!("{}model.layers.{layer}.{name}", self.prefix)
    }
}

fn by_name(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.name == name)
}

fn find(part: &str, names: Names) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == part).map(|(_, name)| *name)
}
