//! The config fields nearly every transformer shares.

use std::num::NonZeroUsize;

use crate::{
    Activation, Attention, AttentionSpan, Blueprint, Config, ConfigError, GatedMlp, Head, LayerSpec, Names,
    Norm, Position,
};

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

impl Dims {
    /// Reads them.
    pub fn read(cfg: &Config) -> Result<Self, ConfigError> {
        let hidden: NonZeroUsize = cfg.req("hidden_size")?;
        let heads: NonZeroUsize = cfg.req("num_attention_heads")?;
        let count = |field: &str| cfg.req::<NonZeroUsize>(field).map(NonZeroUsize::get);
        let tied: bool = cfg.or("tie_word_embeddings", true)?;
        Ok(Self {
            hidden: hidden.get(),
            layers: Self::layers(cfg)?,
            heads: heads.get(),
            kv_heads: cfg.or("num_key_value_heads", heads)?.get(),
            head_dim: cfg.opt::<NonZeroUsize>("head_dim")?.map_or(hidden.get() / heads, NonZeroUsize::get),
            vocab: count("vocab_size")?,
            context: cfg.or::<NonZeroUsize>("max_position_embeddings", DEFAULT_CONTEXT)?.get(),
            norm: Norm::Rms { eps: cfg.or("rms_norm_eps", 1e-6)? },
            head: if tied { Head::Tied } else { Head::Own },
        })
    }

    /// How many layers there are.
    pub(crate) fn layers(cfg: &Config) -> Result<usize, ConfigError> {
        let layers: NonZeroUsize = cfg.req("num_hidden_layers")?;
        if layers.get() <= LAYERS_MAX {
            return Ok(layers.get());
        }
        Err(ConfigError::Unsupported {
            field: "num_hidden_layers".to_owned(),
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
            act: cfg.choice_opt("hidden_act", Activation::CHOICES)?.unwrap_or(Activation::Silu),
            bias: false,
        })
    }
}

impl Blueprint {
    /// A network with no scaling, no cap and Llama's tensor names.
    pub fn new(dims: &Dims, layers: Vec<LayerSpec>) -> Self {
        Self {
            hidden: dims.hidden,
            vocab: dims.vocab,
            context: Some(dims.context),
            embed_scale: 1.0,
            layers,
            final_norm: dims.norm,
            head: dims.head,
            logit_softcap: None,
            names: Names::LLAMA,
            rewrites: Vec::new(),
        }
    }
}

impl Attention {
    /// Causal attention over everything, scaled by `1/√head_dim`, with no extras.
    pub fn new(dims: &Dims, position: Position) -> Self {
        Self {
            heads: dims.heads,
            kv_heads: dims.kv_heads,
            head_dim: dims.head_dim,
            scale: (dims.head_dim as f32).powf(-0.5),
            span: AttentionSpan::Full,
            position,
            qk_norm: None,
            qkv_bias: false,
            out_bias: false,
            out_gate: false,
        }
    }
}
