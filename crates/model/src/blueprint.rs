//! The description of one network: plain data that can be printed, compared and counted.
//!
//! A new family usually adds no variant here, only a file in `families`. A new variant is a new
//! computation: a folder in `mixers` or a file in `mlps`.

mod cut;
mod draft_head;
mod footprint;
mod manifest;
mod row_elements;
mod span_rule;
mod stage;
mod summary;
mod validate;

pub use draft_head::{DraftHeadInput, HeadStates, TokenTable};
pub(crate) use manifest::{
    EMBED_NORM, FUSE, HISTORY_PARTS, HYPER_PARTS, MASKED_HEAD, OUTPUT_HISTORY, POSITIONS, RESIDUAL_GATES,
    TOKEN_TYPES,
};
pub use span_rule::SpanRule;
pub use stage::Stage;

use std::ops::Range;

use crate::Activation;
use crate::batch::SpanRuns;
use crate::mixers::{Absent, AttentionSpan, Bidirectional, Mixer};
use crate::mlps::Mlp;
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::rope::{Position, RotaryAxes};

/// Everything the decoder needs of one checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the logits.
    pub vocab: usize,
    /// Longest sequence, in tokens, the positions were trained for. `None` for pure recurrences.
    pub context: Option<usize>,
    /// Learned positions are added to the embeddings (GPT-2).
    pub learned_positions: Option<LearnedPositions>,
    /// Embeddings of so many token types are added (BERT). Token `type · vocab + id` is token `id` of that type.
    pub token_types: Option<usize>,
    /// Each layer has embeddings of its own (Gemma 3n).
    pub per_layer_inputs: Option<PerLayerInputs>,
    /// Vocabularies whose tokens are embedded as pictures and sound are (Gemma 3n). One follows the other, and a checkpoint
    /// without their tensors has none.
    pub media_vocabularies: Vec<MediaVocabulary>,
    /// What the residual stream is.
    pub stream: StreamKind,
    /// Embeddings are multiplied by this (Gemma: √hidden).
    pub embed_scale: f32,
    /// Applied to the embeddings.
    pub embed_norm: Option<Norm>,
    /// In order of execution.
    pub layers: Vec<LayerSpec>,
    /// All passes through the layers but the first repeat its weights.
    pub passes: Passes,
    /// Which part of the network this is.
    pub stage: Stage,
    /// Applied after the last layer.
    pub final_norm: Norm,
    /// Where the logits come from.
    pub head: Head,
    /// The last tokens of the vocabulary, so many, are read and never predicted: the head has no rows for them, and their
    /// logits are −∞ (Llama 3.2 Vision, Molmo 2).
    pub unpredicted: usize,
    /// Bias on the head.
    pub head_bias: bool,
    /// Logits are multiplied by this (Cohere, Granite).
    pub logit_scale: f32,
    /// `cap · tanh(logits / cap)`.
    pub logit_softcap: Option<f32>,
    /// Tokens that pictures are made of, where those of all pictures see each other.
    pub picture_tokens: Vec<u32>,
    /// Tokens whose logits are −∞: placeholders of a tokenizer.
    pub never_sampled: Vec<usize>,
    /// The head of a masked language model, of a checkpoint that has one. Whether there are logits to sample is `head`'s matter.
    pub masked_head: Option<MaskedHead>,
    /// Names of the tensors outside the layers.
    pub names: Names,
    /// Modules whose weights were rotated before they were packed.
    pub rotated: Vec<RotatedModule>,
    /// How a published checkpoint becomes the tensors this blueprint names, in order.
    pub rewrites: Vec<WeightRewrite>,
}

impl Blueprint {
    /// The layers that have weights: those of the first pass.
    pub fn stored_layers(&self) -> &[LayerSpec] {
        self.layers.get(..self.layers.len() / self.passes.count()).unwrap_or(&[])
    }

    /// How many layers a checkpoint numbers.
    pub fn stored_layer_count(&self) -> usize {
        self.stored_layers().iter().map(|layer| layer.number + 1).max().unwrap_or(0)
    }

    /// The kind of the norms of what a draft head joins: that of its first layer.
    pub(crate) fn fuse_norm(&self) -> Norm {
        self.layers.first().map_or(self.final_norm, |layer| layer.norm)
    }

    /// This blueprint with layers numbered in another way; `number` gives the number of the layer at an index.
    pub fn numbered(mut self, number: impl Fn(usize) -> usize) -> Self {
        self.layers.iter_mut().enumerate().for_each(|(index, layer)| layer.number = number(index));
        self
    }

    /// Positions of a prompt that attend to each other in both directions in some layers, in order. `media`: the positions
    /// of each picture's features, in order. One pass must compute all of a span, and a cached prefix must not end inside
    /// one, because its keys depend on all of it.
    pub fn bidirectional_spans(&self, prompt: &[u32], media: &[Range<usize>]) -> Vec<SpanRuns> {
        self.span_rule().spans(prompt, media)
    }

    /// Which positions of a prompt attend to each other in both directions.
    pub fn span_rule(&self) -> SpanRule {
        SpanRule { directions: self.directions(), picture_tokens: self.picture_tokens.clone() }
    }

    /// Most positions of a span, of a prompt and a picture of so many tokens at most. Zero if there are none.
    pub fn longest_span(&self, prompt: usize, picture: usize) -> usize {
        match self.directions() {
            Bidirectional::Pictures => picture,
            Bidirectional::AllPictures | Bidirectional::Prompts | Bidirectional::Symmetric => prompt,
            Bidirectional::No => 0,
        }
    }

    /// Whether all layers attend to all positions of a text, which is then computed whole.
    pub(crate) fn is_encoder(&self) -> bool {
        let attentions = || self.layers.iter().flat_map(|layer| layer.mixer.attentions());
        attentions().all(|attention| attention.bidirectional == Bidirectional::Symmetric)
            && attentions().next().is_some()
    }

    /// Where its layers attend to later positions, if some do.
    fn directions(&self) -> Bidirectional {
        let attentions = self.layers.iter().flat_map(|layer| layer.mixer.attentions());
        attentions.map(|attention| attention.bidirectional).max().unwrap_or(Bidirectional::No)
    }

    /// All layers attend to later positions, too.
    pub(crate) fn attend_to_later(&mut self, directions: Bidirectional) {
        let attentions = self.layers.iter_mut().flat_map(|layer| layer.mixer.attentions_mut());
        attentions.for_each(|attention| attention.bidirectional = directions);
    }

    /// Whether rows attend to pictures in layers of cross attention, and not to features in the place of tokens.
    pub fn has_cross_attention(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.mixer, Mixer::CrossAttention(_)))
    }

    /// By how many positions rows rotate.
    pub fn rotary_axes(&self) -> RotaryAxes {
        let attentions = self.layers.iter().flat_map(|layer| layer.mixer.attentions());
        let mut ropes = attentions.filter_map(|attention| match &attention.position {
            Position::Rope(rope) => Some(rope),
            Position::None => None,
        });
        match ropes.any(|rope| rope.sections.is_some()) {
            true => RotaryAxes::Three,
            false => RotaryAxes::One,
        }
    }

    /// Limits layers with full attention to the first `sink_tokens` positions and the last ones, `tokens` together. Others
    /// stay as they are. `tokens` is above `sink_tokens`.
    pub(crate) fn limit_attention_span(&mut self, tokens: usize, sink_tokens: usize) {
        for layer in &mut self.layers {
            for attention in layer.mixer.attentions_mut() {
                if attention.span == AttentionSpan::Full {
                    attention.span = AttentionSpan::Sinks { tokens: tokens - sink_tokens, sink_tokens };
                }
            }
        }
    }
}

/// A table of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedPositions {
    /// Its rows.
    pub rows: usize,
    /// The row of a sequence's first position (RoBERTa).
    pub first: usize,
}

impl LearnedPositions {
    /// A table of so many, from the first row on.
    pub fn new(rows: usize) -> Self {
        Self { rows, first: 0 }
    }
}

/// How often the layers compute. Each pass has caches of its own: `layers` has the layers of all passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Passes {
    One,
    Several {
        count: usize,
        /// Every pass ends with the final norm, not only the last.
        each_normed: bool,
    },
}

impl Passes {
    /// How many.
    pub fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Several { count, .. } => count.max(1),
        }
    }
}

/// What the residual stream is. Parts of layers add to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StreamKind {
    /// A sum in the dtype of activations.
    Plain,
    /// A sum in float32. The first mixer and the head read it rounded to bfloat16 (Muse Spark).
    F32,
    /// Several copies, of which layers compute one (Gemma 3n).
    Alternating(AlternatingUpdates),
    /// Several copies; parts of layers read a mix of them (DeepSeek-V4.1).
    Hyper(HyperConnections),
    /// Sums over blocks of layers: parts of layers and the head read a mean of the stream and of what it was at the beginnings
    /// of blocks (Kimi K3).
    History {
        /// How many layers a block has.
        block: usize,
    },
}

/// A module whose inputs were rotated by a signed Walsh-Hadamard transform of blocks, with signs in `<path>.signs`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RotatedModule {
    pub path: String,
    /// Inputs of a block; a power of two that divides all of them.
    pub block: usize,
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
    /// The target model's, of a draft head.
    Target,
    /// There are none: what the network is for are its hidden states.
    Absent,
}

/// The head of a masked language model, `masked_head`: a dense layer, an activation and a norm, then logits of the tied
/// embedding with a bias. What it gives is never sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct MaskedHead {
    pub act: Activation,
    pub norm: Norm,
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
    /// Its number in tensor names, `layers.N`. Parts of a layer that are layers of their own here share one.
    pub number: usize,
    /// The mixer's name below `layers.N`.
    pub mixer_name: &'static str,
    /// How positions exchange information.
    pub mixer: Mixer,
    /// The MLP's name below `layers.N`.
    pub mlp_name: &'static str,
    /// How each position is transformed on its own. `None` in pure recurrences.
    pub mlp: Option<Mlp>,
    /// With its name, an MLP beside the other, whose output joins the stream behind the next layer (LongCat).
    pub shortcut: Option<(&'static str, Mlp)>,
    /// What the mixer reads joins its output through a vector of this width (Gemma 3n).
    pub laurel: Option<usize>,
    /// What happens to the stream behind mixer and MLP, in order.
    pub finish: Vec<Finish>,
    /// How what mixer and MLP compute joins the stream.
    pub residual: Residual,
    /// The kind of every norm in the layer.
    pub norm: Norm,
    /// The kinds of the norms after mixer and MLP, if they are others.
    pub norms_after: Option<[Norm; 2]>,
    /// Where the norms sit around the two residual additions, and what they are called.
    pub norm_placement: NormPlacement,
}

impl LayerSpec {
    /// A pre-norm layer under Llama's names.
    pub fn pre_norm(mixer: impl Into<Mixer>, mlp: impl Into<Mlp>, norm: Norm) -> Self {
        Self {
            mlp: Some(mlp.into()),
            norm_placement: NormPlacement::LLAMA,
            ..Self::mixer_alone(mixer, norm, "")
        }
    }
}

impl LayerSpec {
    /// The names and kinds of its norms, in order of use.
    pub fn norms(&self) -> Vec<(&'static str, Norm)> {
        let mut after = self.norms_after.unwrap_or([self.norm; 2]).into_iter();
        let kind = |is_after| if is_after { after.next().unwrap_or(self.norm) } else { self.norm };
        let placement = self.norm_placement;
        placement.norms().into_iter().zip(placement.is_after().into_iter().map(kind)).collect()
    }

    /// A mixer without an MLP.
    pub fn mixer_alone(mixer: impl Into<Mixer>, norm: Norm, name: &'static str) -> Self {
        Self {
            number: 0,
            mixer_name: "self_attn",
            mixer: mixer.into(),
            mlp_name: "mlp",
            mlp: None,
            shortcut: None,
            laurel: None,
            finish: Vec::new(),
            residual: Residual::Scaled(1.0),
            norm,
            norms_after: None,
            norm_placement: NormPlacement::Alone { norm: name },
        }
    }

    /// An MLP without a mixer.
    pub fn mlp_alone(mlp: impl Into<Mlp>, norm: Norm, name: &'static str) -> Self {
        let norm_placement = NormPlacement::MlpAlone { norm: name };
        Self { mlp: Some(mlp.into()), norm_placement, ..Self::mixer_alone(Absent, norm, name) }
    }

    /// This layer with its norms elsewhere.
    pub fn with_norms(self, norm_placement: NormPlacement) -> Self {
        Self { norm_placement, ..self }
    }
}

/// How what a mixer or an MLP computes joins the stream `x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Residual {
    /// `x += scale · term`; a scale of 1 in most models (Granite and MiniCPM have others).
    Scaled(f32),
    /// `x = stays · x + joins · term`, with learned vectors of each (Muse Spark).
    Gated,
    /// `x += tanh(gate) · term`, with a learned number (Llama 3.2 Vision).
    TanhGate,
}

/// Embeddings that each layer has of its own: a projection of the first layer's input, and in most models a table.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct PerLayerInputs {
    pub width: usize,
    /// Rows of the table of all layers; tokens behind it have the first. `None` without a table (EmbeddingGemma 2).
    pub vocab: Option<usize>,
    pub norm_eps: f32,
}

/// Tokens with a table of their own, whose rows pass through a norm, a projection to the stream's width and a norm without
/// weights. The embedding scale does not count for them.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaVocabulary {
    /// Where its tensors are, below the root.
    pub path: String,
    /// Its first token.
    pub first: usize,
    /// How many tokens.
    pub count: usize,
    /// Of the table's rows.
    pub width: usize,
    #[allow(missing_docs)]
    pub norm_eps: f32,
}

/// Copies of the stream. A layer predicts all of them, computes one, and corrects the others by the difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlternatingUpdates {
    /// How many.
    pub copies: usize,
    /// Which one layers compute.
    pub active: usize,
    /// Weights of predictions and corrections are at most this.
    pub limit: f32,
    /// The active copy is multiplied by a learned vector before it meets the layer's own embeddings.
    pub scales_output: bool,
    /// Of the norm before modalities.
    pub norm_eps: f32,
}

/// Copies of the stream. What a part reads and how the copies mix depends on the copies; the last mixes are what the head
/// reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HyperConnections {
    /// How many.
    pub copies: usize,
    /// Alternating normalisations of the mixing matrix's columns and rows.
    pub iterations: usize,
    /// Added to shares and sums.
    pub eps: f32,
    /// Of the norm of all copies.
    pub norm_eps: f32,
}

/// What happens to the stream `x` behind a layer's parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finish {
    /// `x += gain · embeddings`, with a learned gain, `embed_skip` (Talkie)
    AddEmbeddings,
    /// `x += norm(projection(act(gate(x)) · embeddings))`, with the layer's own embeddings of this width (Gemma 4)
    #[allow(missing_docs)]
    PerLayerInput { width: usize, act: Activation, norm_eps: f32 },
    /// `x = factor · x`, with a learned factor, `layer_scalar` (Gemma 4)
    Scale,
}

/// Residual arithmetic of a layer, with `x` the stream, `m` the mixer, `f` the MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NormPlacement {
    /// `x += m(x)`, for layers without an MLP
    Bare,
    /// `x += m(norm(x))`, for layers without an MLP (Mamba)
    Alone { norm: &'static str },
    /// `x += f(norm(x))`, for layers without a mixer (Nemotron-H)
    MlpAlone { norm: &'static str },
    /// Nothing (Nemotron-NAS)
    Nothing,
    /// `x += m(norm(x)); x += f(norm(x))` (Llama, Qwen)
    Pre { mixer: &'static str, mlp: &'static str },
    /// `x += m(x); x += f(norm(x))` (the first layer of ModernBERT)
    Unnormed { mlp: &'static str },
    /// `n = norm(x); x += m(n) + f(n)` (GPT-J, Cohere)
    Parallel { norm: &'static str },
    /// `x += m(norm(x)) + f(norm(x))`, with norms of their own (GPT-NeoX)
    ParallelPair { mixer: &'static str, mlp: &'static str },
    /// `x += norm(m(x)); x += norm(f(x))` (OLMo 2)
    Post { mixer: &'static str, mlp: &'static str },
    /// `x = norm(x + m(x)); x = norm(x + f(x))`, the first transformer's (BERT). Source: arXiv 1706.03762.
    OfSums { mixer: &'static str, mlp: &'static str },
    /// `x += norm(m(norm(x))); x += norm(f(norm(x)))` (Gemma 2 and 3); each pair is before, after
    Sandwich { mixer: [&'static str; 2], mlp: [&'static str; 2] },
    /// `n = norm(x); x = (x or n) + m([norm(embeddings), n]); x += f(norm(x))` (EAGLE-3)
    Beside { embeddings: &'static str, mixer: &'static str, mlp: &'static str, adds_to: BesideSum },
    /// `x += norm(m(norm(x))); x += norm(f(x))`, where the MLP norms what it reads itself
    OpenSandwich { mixer: [&'static str; 2], mlp: &'static str },
}

/// What a mixer that reads embeddings beside the stream adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideSum {
    /// The stream.
    Stream,
    /// The norm of the stream, which takes its place.
    Normed,
}

impl NormPlacement {
    /// Pre-norm under the names most checkpoints use.
    pub const LLAMA: Self = Self::Pre { mixer: "input_layernorm", mlp: "post_attention_layernorm" };
    /// Mixer and MLP beside each other.
    pub const PARALLEL: Self = Self::Parallel { norm: "input_layernorm" };
    /// Post-norm, under OLMo 2's names.
    pub const OLMO2: Self =
        Self::Post { mixer: "post_attention_layernorm", mlp: "post_feedforward_layernorm" };
    /// Norms on both sides, under Gemma's names.
    pub const GEMMA: Self = Self::Sandwich {
        mixer: ["input_layernorm", "post_attention_layernorm"],
        mlp: ["pre_feedforward_layernorm", "post_feedforward_layernorm"],
    };

    /// True of norms that come after mixer and MLP, in order of use.
    pub fn is_after(&self) -> Vec<bool> {
        match self {
            Self::Post { .. } => vec![true, true],
            Self::Sandwich { .. } => vec![false, true, false, true],
            Self::OpenSandwich { .. } => vec![false, true, true],
            _ => vec![false; self.norms().len()],
        }
    }

    /// The names of the norms, in order of use.
    pub fn norms(&self) -> Vec<&'static str> {
        match *self {
            Self::Nothing | Self::Bare => Vec::new(),
            Self::Alone { norm }
            | Self::MlpAlone { norm }
            | Self::Parallel { norm }
            | Self::Unnormed { mlp: norm } => vec![norm],
            Self::Pre { mixer, mlp }
            | Self::ParallelPair { mixer, mlp }
            | Self::Post { mixer, mlp }
            | Self::OfSums { mixer, mlp } => vec![mixer, mlp],
            Self::Sandwich { mixer, mlp } => [mixer, mlp].concat(),
            Self::OpenSandwich { mixer: [before, after], mlp } => vec![before, after, mlp],
            Self::Beside { embeddings, mixer, mlp, .. } => vec![embeddings, mixer, mlp],
        }
    }
}
