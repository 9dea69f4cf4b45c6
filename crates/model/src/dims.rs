//! The config fields nearly every transformer shares.

use std::num::NonZeroUsize;

use crate::Activation;
use crate::blueprint::{Blueprint, Head, LayerSpec, Names, Passes, Stage, StreamKind};
use crate::config::{Config, ConfigError};
use crate::mixers::{Attention, AttentionSpan, Bidirectional, KeySource};
use crate::mlps::{ACTIVATIONS, GatedMlp};
use crate::norm::Norm;
use crate::rope::Position;

/// Sizes and the norm, under the names nearly every transformer uses.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Dims {
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    /// Absent means one per query head.
    pub kv_heads: usize,
    /// Absent means `hidden / heads`.
    pub head_dim: usize,
    pub vocab: usize,
    /// Longest trained sequence, in tokens.
    pub context: usize,
    pub norm: Norm,
    /// Absent means tied: Hugging Face omits fields equal to its base class, where this is true.
    pub head: Head,
}

/// What a config calls the sizes.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct DimFields {
    pub hidden: &'static str,
    pub layers: &'static str,
    pub heads: &'static str,
    pub kv_heads: &'static str,
    pub vocab: &'static str,
    pub context: &'static str,
    pub norm_eps: &'static str,
}

impl DimFields {
    /// What nearly every transformer calls them.
    pub const LLAMA: Self = Self {
        hidden: "hidden_size",
        layers: "num_hidden_layers",
        heads: "num_attention_heads",
        kv_heads: "num_key_value_heads",
        vocab: "vocab_size",
        context: "max_position_embeddings",
        norm_eps: "rms_norm_eps",
    };
    /// GPT-2's names.
    pub const GPT2: Self = Self {
        hidden: "n_embd",
        layers: "n_layer",
        heads: "n_head",
        context: "n_positions",
        norm_eps: "layer_norm_epsilon",
        ..Self::LLAMA
    };
}

impl Dims {
    /// Reads them; the head is tied unless the config says otherwise.
    pub fn read(cfg: &Config) -> Result<Self, ConfigError> {
        Self::read_as(cfg, &DimFields::LLAMA)
    }

    /// Reads the dimensions; the head is not tied unless the config says otherwise.
    pub fn read_untied(cfg: &Config) -> Result<Self, ConfigError> {
        Self::read_untied_as(cfg, &DimFields::LLAMA)
    }

    /// Reads the dimensions under other names; the head is not tied unless the config says otherwise.
    pub fn read_untied_as(cfg: &Config, fields: &DimFields) -> Result<Self, ConfigError> {
        let tied = cfg.or("tie_word_embeddings", false)?;
        Ok(Self { head: if tied { Head::Tied } else { Head::Own }, ..Self::read_as(cfg, fields)? })
    }

    /// Reads them under other names.
    pub fn read_as(cfg: &Config, fields: &DimFields) -> Result<Self, ConfigError> {
        let hidden: NonZeroUsize = cfg.req(fields.hidden)?;
        let heads: NonZeroUsize = cfg.req(fields.heads)?;
        let count = |field: &str| cfg.req::<NonZeroUsize>(field).map(NonZeroUsize::get);
        let tied: bool = cfg.or("tie_word_embeddings", true)?;
        Ok(Self {
            hidden: hidden.get(),
            layers: Self::layers(cfg, fields.layers)?,
            heads: heads.get(),
            kv_heads: cfg.or(fields.kv_heads, heads)?.get(),
            head_dim: cfg.opt::<NonZeroUsize>("head_dim")?.map_or(hidden.get() / heads, NonZeroUsize::get),
            vocab: count(fields.vocab)?,
            context: cfg.or::<NonZeroUsize>(fields.context, DEFAULT_CONTEXT)?.get(),
            norm: Norm::Rms { eps: cfg.or(fields.norm_eps, 1e-6)? },
            head: if tied { Head::Tied } else { Head::Own },
        })
    }

    /// These dimensions with layer norms, with or without a bias, in place of RMS norms.
    pub fn with_layer_norm(self, eps: f32, bias: bool) -> Self {
        Self { norm: Norm::Layer { eps, bias }, ..self }
    }

    /// How many layers there are.
    pub(crate) fn layers(cfg: &Config, field: &str) -> Result<usize, ConfigError> {
        let layers: NonZeroUsize = cfg.req(field)?;
        if layers.get() <= LAYERS_MAX {
            return Ok(layers.get());
        }
        Err(ConfigError::Unsupported {
            field: field.to_owned(),
            found: layers.to_string(),
            supported: format!("up to {LAYERS_MAX}"),
        })
    }
}

/// More layers would only allocate memory; no model has them.
const LAYERS_MAX: usize = 4096;

/// Hugging Face's default for Llama.
const DEFAULT_CONTEXT: NonZeroUsize = NonZeroUsize::new(2048).expect("not zero");

impl GatedMlp {
    /// The dense MLP of a transformer config: `intermediate_size` and `hidden_act`.
    pub fn read(cfg: &Config) -> Result<Self, ConfigError> {
        Ok(Self {
            width: cfg.req::<NonZeroUsize>("intermediate_size")?.get(),
            act: cfg.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu),
            bias: false,
        })
    }

    /// This MLP with a bias on all projections.
    pub fn with_bias(self, bias: bool) -> Self {
        Self { bias, ..self }
    }
}

impl Blueprint {
    /// A network with no scaling, no cap and Llama's tensor names.
    pub fn new(dims: &Dims, layers: Vec<LayerSpec>) -> Self {
        Self {
            hidden: dims.hidden,
            vocab: dims.vocab,
            context: Some(dims.context),
            learned_positions: None,
            token_types: None,
            per_layer_inputs: None,
            media_vocabularies: Vec::new(),
            stream: StreamKind::Plain,
            embed_scale: 1.0,
            embed_norm: None,
            layers,
            passes: Passes::One,
            stage: Stage::Whole,
            final_norm: dims.norm,
            head: dims.head,
            unpredicted: 0,
            head_bias: false,
            logit_scale: 1.0,
            logit_softcap: None,
            picture_tokens: Vec::new(),
            never_sampled: Vec::new(),
            masked_head: None,
            names: Names::LLAMA,
            rotated: Vec::new(),
            rewrites: Vec::new(),
        }
        .numbered(|index| index)
    }
}

impl Blueprint {
    /// A network whose layers are all alike.
    pub fn uniform(dims: &Dims, layer: LayerSpec) -> Self {
        Self::new(dims, vec![layer; dims.layers])
    }
}

impl Attention {
    /// This attention with a bias on all projections.
    pub fn with_bias(self, bias: bool) -> Self {
        Self { qkv_bias: bias, out_bias: bias, ..self }
    }

    /// Causal attention over everything, scaled by `1/√head_dim`, with no extras.
    pub fn new(dims: &Dims, position: Position) -> Self {
        Self {
            heads: dims.heads,
            kv_heads: dims.kv_heads,
            head_dim: dims.head_dim,
            v_head_dim: dims.head_dim,
            scale: (dims.head_dim as f32).powf(-0.5),
            span: AttentionSpan::Full,
            bidirectional: Bidirectional::No,
            position,
            qk_norm: None,
            qkv_bias: false,
            out_bias: false,
            out_gate: None,
            clip_qkv: None,
            softcap: None,
            sink_logits: false,
            value_scale: 1.0,
            temperature: None,
            keys: KeySource::Own,
            value_norm: None,
            rounds_keys: false,
            out_norm: None,
            query_gain: false,
            inputs: None,
            block_sparse: None,
            distances: None,
        }
    }
}
