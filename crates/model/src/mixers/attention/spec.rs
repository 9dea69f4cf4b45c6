//! Softmax attention over grouped heads: what a layer computes, and its rules.

use mlx::cpu::Projected;
use serde::{Deserialize, Serialize};

use super::{DistanceScores, QkNorm};
use crate::norm::Norm;
use crate::rope::Position;
use crate::rules::Broken;
use crate::spec::Rules;

/// Softmax attention over grouped key/value heads.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head of queries and keys.
    pub head_dim: usize,
    /// Width of one head of values.
    pub v_head_dim: usize,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
    /// Which earlier positions a query attends to.
    pub span: AttentionSpan,
    /// Which later ones.
    pub bidirectional: Bidirectional,
    /// How position enters.
    pub position: Position,
    /// Norm on queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Bias on the q, k and v projections.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub out_bias: bool,
    /// What the heads' output is multiplied by.
    pub out_gate: Option<OutputGate>,
    /// Projected queries, keys and values are limited to this magnitude (DBRX).
    pub clip_qkv: Option<f32>,
    /// `cap · tanh(score / cap)` (Gemma 2).
    pub softcap: Option<f32>,
    /// Each head has the learned logit of a key without a value (gpt-oss).
    pub sink_logits: bool,
    /// Values are multiplied by this.
    pub value_scale: f32,
    /// Queries grow with their position.
    pub temperature: Option<Temperature>,
    /// Where keys and values come from.
    pub keys: KeySource,
    /// RMS norm of each head's values, without a weight, with this epsilon (Gemma 4).
    pub value_norm: Option<f32>,
    /// Keys and values are rounded to multiples of a learned scale, as if they were stored in 8 bits (AFM 7).
    pub rounds_keys: bool,
    /// Norm of the heads' output.
    pub out_norm: Option<OutNorm>,
    /// Queries are multiplied by a learned number for each head (Talkie).
    pub query_gain: bool,
    /// Width of what it reads, if that is not the stream's (EAGLE-3).
    pub inputs: Option<usize>,
    /// Which blocks of keys a head sees, by their positions.
    pub block_sparse: Option<BlockSparse>,
    /// What the distance of a row and a key adds to their score.
    pub distances: Option<DistanceScores>,
}

/// Norm of the heads' output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OutNorm {
    /// Of all heads together, behind the gate (BitNet).
    AllHeads(Norm),
    /// RMS of each head, without a weight, before the gate, with this epsilon (Muse Spark).
    EachHead(f32),
}

/// Where a layer's keys and values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// Its own projections, `k_proj` and `v_proj`.
    Own,
    /// `k_proj` gives both: values are keys before their norm and rotation (Gemma 4).
    OwnAsValues,
    /// The cache of an earlier layer, which is of the same span.
    Layer(usize),
}

/// A query sees the last `local` blocks of `size` keys, its own included, and each head every `stride`-th block of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BlockSparse {
    pub size: usize,
    pub local: usize,
    pub stride: usize,
}

/// What the heads' output is multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputGate {
    /// `q_proj` also yields a gate, head by head, for each element; its sigmoid (Qwen3-Next).
    InQueries,
    /// The sigmoid of `gate_proj`, for each element.
    PerElement,
    /// `gate_proj` yields one number for each head.
    PerHead(HeadGate),
}

/// What becomes of a head's gate before it multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HeadGate {
    Sigmoid,
    Softplus,
}

/// Queries at position `p` are multiplied by `1 + beta · ln(1 + ⌊(p + shift) / period⌋)` (Llama 4).
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Temperature {
    pub beta: f32,
    pub period: usize,
    pub shift: usize,
}

/// Which later positions a query attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Bidirectional {
    /// None.
    No,
    /// Later positions of the query's own picture (Gemma 3).
    Pictures,
    /// Later positions of all pictures of the prompt, but not of text between them (Molmo 2).
    AllPictures,
    /// Later positions of the prompt (PaliGemma).
    Prompts,
    /// Later positions of the prompt, in layers with a window as far as earlier ones (ModernBERT).
    Symmetric,
}

/// Which earlier positions a query attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttentionSpan {
    /// All of them.
    Full,
    /// The last `n`, itself included.
    Window(usize),
    /// Keys in the query's own chunk of so many positions (Llama 4).
    Chunk(usize),
    /// The last `tokens`, itself included, and the first `sink_tokens` of the sequence. Source: arXiv 2309.17453.
    Sinks {
        /// The last ones.
        tokens: usize,
        /// The first ones.
        sink_tokens: usize,
    },
}

impl Attention {
    /// False where they come from another layer.
    pub(crate) fn has_keys(&self) -> bool {
        !matches!(self.keys, KeySource::Layer(_))
    }

    /// What its projections give.
    pub(crate) fn projected(&self) -> Projected {
        match self.keys {
            KeySource::Own => Projected::QueriesKeysValues,
            KeySource::OwnAsValues => Projected::QueriesAndKeys,
            KeySource::Layer(_) => Projected::Queries,
        }
    }

    /// What [preparation](super::prepare::Preparation) makes of that: values stand beside keys that are normed and rotated.
    pub(super) fn prepared(&self) -> Projected {
        match self.projected() {
            Projected::QueriesKeysValues | Projected::QueriesAndKeys => Projected::QueriesKeysValues,
            Projected::Queries => Projected::Queries,
        }
    }

    /// True where MLX's operations alone compute it.
    pub(crate) fn needs_mlx(&self) -> bool {
        matches!(self.span, AttentionSpan::Chunk(_))
            || self.block_sparse.is_some()
            || self.distances.is_some()
    }
}

impl Rules for Attention {
    fn check_rules(&self, broken: &mut Broken) {
        broken.divides(("num_key_value_heads", self.kv_heads), ("num_attention_heads", self.heads));
        broken.size(&[("num_attention_heads", self.heads), ("head_dim", self.head_dim)]);
        broken.size(&[("num_attention_heads", self.heads), ("v_head_dim", self.v_head_dim)]);
        broken.position(&self.position, self.head_dim);
        let is_empty = matches!(
            self.span,
            AttentionSpan::Window(0) | AttentionSpan::Chunk(0) | AttentionSpan::Sinks { tokens: 0, .. }
        );
        broken.check(!is_empty, || "`sliding_window` (0) holds at least one token".to_owned());
        if let Some(distances) = self.distances {
            distances.check_rules(broken);
            broken.check(self.softcap.is_none() && self.kv_heads == self.heads, || {
                "scores by distance are of heads with keys of their own, without a cap".to_owned()
            });
        }
        let limits = [Some(self.scale), self.softcap, self.clip_qkv];
        for (limit, what) in limits.into_iter().zip(["scale", "soft cap", "clip"]) {
            broken.check(limit.is_none_or(|limit| limit.is_finite() && limit > 0.0), || {
                format!("the {what} of attention ({}) is positive", limit.unwrap_or(0.0))
            });
        }
    }
}
