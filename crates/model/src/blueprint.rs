//! The description of one network: plain data that can be printed, compared and counted.
//!
//! A new family usually adds no variant here, only a file in `families`. A new variant is a new
//! computation: a folder in `mixers` or a file in `mlps`.

mod footprint;
mod manifest;
mod validate;

use crate::{Attention, AttentionSpan, Mixer, Mlp, Norm, WeightRewrite};

/// Everything the decoder needs of one checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the logits.
    pub vocab: usize,
    /// Longest sequence, in tokens, the positions were trained for. `None` for pure recurrences.
    pub context: Option<usize>,
    /// Embeddings are multiplied by this, rounded to bfloat16 first (Gemma: √hidden).
    pub embed_scale: f32,
    /// In order of execution.
    pub layers: Vec<LayerSpec>,
    /// Applied after the last layer.
    pub final_norm: Norm,
    /// Where the logits come from.
    pub head: Head,
    /// `cap · tanh(logits / cap)`.
    pub logit_softcap: Option<f32>,
    /// Names of the tensors outside the layers.
    pub names: Names,
    /// How a published checkpoint becomes the tensors this blueprint names, in order.
    pub rewrites: Vec<WeightRewrite>,
}

impl Blueprint {
    /// Limits layers with full attention to the first `sink_tokens` positions and the last ones, `tokens` together. Others
    /// stay as they are. `tokens` is above `sink_tokens`.
    pub(crate) fn limit_attention_span(&mut self, tokens: usize, sink_tokens: usize) {
        for layer in &mut self.layers {
            if let Mixer::Attention(Attention { span: span @ AttentionSpan::Full, .. }) = &mut layer.mixer {
                *span = AttentionSpan::Sinks { tokens: tokens - sink_tokens, sink_tokens };
            }
        }
    }
}

/// Where the logits come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// The embedding, used backwards; an `lm_head` in the checkpoint is dropped.
    Tied,
    /// `lm_head`.
    Own,
    /// `lm_head` if the checkpoint has one, else the embedding (Gemma 3).
    OwnIfPresent,
}

/// Names of the tensors outside the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Names {
    pub root: &'static str,
    pub embed: &'static str,
    pub final_norm: &'static str,
}

impl Names {
    /// `model.embed_tokens`, `model.layers.N`, `model.norm`.
    pub const LLAMA: Self = Self { root: "model", embed: "embed_tokens", final_norm: "norm" };
    /// `backbone.embeddings`, `backbone.layers.N`, `backbone.norm_f`.
    pub const MAMBA: Self = Self { root: "backbone", embed: "embeddings", final_norm: "norm_f" };
}

/// One residual layer: a mixer across positions, then (usually) an MLP within each.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpec {
    /// The mixer's name below `layers.N`.
    pub mixer_name: &'static str,
    /// How positions exchange information.
    pub mixer: Mixer,
    /// The MLP's name below `layers.N`.
    pub mlp_name: &'static str,
    /// How each position is transformed on its own. `None` in pure recurrences.
    pub mlp: Option<Mlp>,
    /// The kind of every norm in the layer.
    pub norm: Norm,
    /// Where the norms sit around the two residual additions, and what they are called.
    pub norm_placement: NormPlacement,
}

impl LayerSpec {
    /// A pre-norm layer under Llama's names.
    pub fn pre_norm(mixer: Mixer, mlp: Mlp, norm: Norm) -> Self {
        Self {
            mixer_name: "self_attn",
            mixer,
            mlp_name: "mlp",
            mlp: Some(mlp),
            norm,
            norm_placement: NormPlacement::LLAMA,
        }
    }
}

/// Residual arithmetic of a layer, with `x` the stream, `m` the mixer, `f` the MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NormPlacement {
    /// `x += m(norm(x))`, for layers without an MLP (Mamba)
    Alone { norm: &'static str },
    /// `x += m(norm(x)); x += f(norm(x))` (Llama, Qwen)
    Pre { mixer: &'static str, mlp: &'static str },
    /// `x += norm(m(x)); x += norm(f(x))` (OLMo 2)
    Post { mixer: &'static str, mlp: &'static str },
    /// `x += norm(m(norm(x))); x += norm(f(norm(x)))` (Gemma 2 and 3); each pair is before, after
    Sandwich { mixer: [&'static str; 2], mlp: [&'static str; 2] },
}

impl NormPlacement {
    /// Pre-norm under the names most checkpoints use.
    pub const LLAMA: Self = Self::Pre { mixer: "input_layernorm", mlp: "post_attention_layernorm" };
    /// Post-norm, under OLMo 2's names.
    pub const OLMO2: Self =
        Self::Post { mixer: "post_attention_layernorm", mlp: "post_feedforward_layernorm" };
    /// Norms on both sides, under Gemma's names.
    pub const GEMMA: Self = Self::Sandwich {
        mixer: ["input_layernorm", "post_attention_layernorm"],
        mlp: ["pre_feedforward_layernorm", "post_feedforward_layernorm"],
    };

    /// The names of the norms, in order of use.
    pub fn norms(&self) -> Vec<&'static str> {
        match *self {
            Self::Alone { norm } => vec![norm],
            Self::Pre { mixer, mlp } | Self::Post { mixer, mlp } => vec![mixer, mlp],
            Self::Sandwich { mixer, mlp } => [mixer, mlp].concat(),
        }
    }
}
