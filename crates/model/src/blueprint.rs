//! The description of one network: plain data that can be printed, compared and counted.
//!
//! A new family usually adds no variant here, only a file in `families`. A new variant is a new
//! computation, so it comes with its tensors (`manifest`), its memory (`state`) and its block.

use crate::{Position, WeightRewrite};

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
        Self { mixer_name: "self_attn", mixer, mlp: Some(mlp), norm, norm_placement: NormPlacement::LLAMA }
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
    /// `x += norm(m(norm(x))); x += norm(f(norm(x)))` (Gemma 2 and 3); each pair is before, after
    Sandwich { mixer: [&'static str; 2], mlp: [&'static str; 2] },
}

impl NormPlacement {
    /// Pre-norm under the names most checkpoints use.
    pub const LLAMA: Self = Self::Pre { mixer: "input_layernorm", mlp: "post_attention_layernorm" };
    /// Norms on both sides, under Gemma's names.
    pub const GEMMA: Self = Self::Sandwich {
        mixer: ["input_layernorm", "post_attention_layernorm"],
        mlp: ["pre_feedforward_layernorm", "post_feedforward_layernorm"],
    };

    /// The names of the norms, in order of use.
    pub fn norms(&self) -> Vec<&'static str> {
        match *self {
            Self::Alone { norm } => vec![norm],
            Self::Pre { mixer, mlp } => vec![mixer, mlp],
            Self::Sandwich { mixer, mlp } => [mixer, mlp].concat(),
        }
    }
}

/// A normalisation over the last axis.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Norm {
    /// `x / √(mean(x²) + eps) · weight`. Gemma stores `weight − 1`; a rewrite adds it back.
    Rms { eps: f32 },
}

/// How positions exchange information.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Mixer {
    Attention(Attention),
    Mamba2(Mamba2),
    GatedDelta(GatedDelta),
}

/// Softmax attention over grouped key/value heads.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
    /// Which earlier positions a query attends to.
    pub span: AttentionSpan,
    /// How position enters.
    pub position: Position,
    /// Norm on queries and keys before rotation.
    pub qk_norm: Option<QkNorm>,
    /// Bias on the q, k and v projections.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub out_bias: bool,
    /// `q_proj` also yields a gate, head by head; the output is multiplied by its sigmoid (Qwen3-Next).
    pub out_gate: bool,
}

/// Which earlier positions a query attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttentionSpan {
    /// All of them.
    Full,
    /// The last `n`, itself included.
    Window(usize),
    /// The last `tokens`, itself included, and the first `sink_tokens` of the sequence. Source: arXiv 2309.17453.
    Sinks {
        /// The last ones.
        tokens: usize,
        /// The first ones.
        sink_tokens: usize,
    },
}

/// Norm on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QkNorm {
    /// One weight of `head_dim`, shared by the heads (Qwen3, Gemma 3).
    PerHead(Norm),
}

/// Mamba-2: a recurrence in which each head's state decays as a whole. Output: `norm(silu(gate) · y)`.
///
/// Source: arXiv 2405.21060.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Mamba2 {
    pub heads: usize,
    pub head_dim: usize,
    /// Groups of heads that share keys and queries (B and C).
    pub groups: usize,
    /// Width of a key.
    pub state_dim: usize,
    /// Length of the causal convolution.
    pub conv_kernel_size: usize,
    /// Least and most of a step Δt, in model time.
    pub step_limits: [f32; 2],
    pub bias: bool,
    pub conv_bias: bool,
    pub norm: Norm,
}

impl Mamba2 {
    /// Width of the heads together.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels through the convolution: the heads, then B, then C.
    pub fn conv_channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state_dim
    }
}

/// Gated DeltaNet: a recurrence that overwrites what its key already stored. Output: `silu(gate) · norm(y)`, the
/// other way round from Mamba-2.
///
/// Source: arXiv 2412.06464.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct GatedDelta {
    pub k_heads: usize,
    /// Divisible by `k_heads`.
    pub v_heads: usize,
    pub k_dim: usize,
    pub v_dim: usize,
    /// Length of the causal convolution.
    pub conv_kernel_size: usize,
    pub norm: Norm,
}

impl GatedDelta {
    /// Width of all values together.
    pub fn values(&self) -> usize {
        self.v_heads * self.v_dim
    }

    /// Width of all keys together.
    pub fn keys(&self) -> usize {
        self.k_heads * self.k_dim
    }

    /// Channels through the convolution: queries, keys, values.
    pub fn conv_channels(&self) -> usize {
        2 * self.keys() + self.values()
    }
}

/// How each position is transformed on its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Mlp {
    /// `down(act(gate(x)) · up(x))`
    Gated(GatedMlp),
    /// A few of many gated MLPs, chosen per token.
    Moe(Moe),
}

/// A gated MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct GatedMlp {
    pub width: usize,
    pub act: Activation,
    pub bias: bool,
}

/// The non-linearity of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
}

impl Activation {
    /// As Hugging Face spells them.
    pub const CHOICES: &[(&str, Self)] =
        &[("silu", Self::Silu), ("gelu", Self::Gelu), ("gelu_pytorch_tanh", Self::GeluTanh)];
}

/// A mixture of gated experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// Number of routed experts.
    pub experts: usize,
    /// Routed experts per token.
    pub top_k: usize,
    /// Each routed expert.
    pub expert: GatedMlp,
    /// How a token's experts are weighed.
    pub routing: Routing,
    /// An expert that computes every token.
    pub shared: Option<SharedExpert>,
}

/// An expert that computes every token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// What it is called (`shared_expert`). Its output is multiplied by the sigmoid of one learned logit,
    /// `<name>_gate`.
    pub name: &'static str,
    /// Hidden width.
    pub width: usize,
}

/// From router logits to experts and their weights: softmax over all experts in float32, the best `top_k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The probabilities as they fall.
    Softmax,
    /// Divided by their sum over the chosen.
    SoftmaxRenormalized,
}
