//! Softmax attention over grouped heads: what a layer computes, and its rules.

use crate::Position;
use crate::rules::Broken;
use crate::spec::Rules;

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
#[allow(missing_docs)]
pub enum QkNorm {
    /// RMS of each head, one weight of `head_dim` shared by the heads (Qwen3, Gemma 3).
    PerHead { eps: f32 },
    /// RMS over all heads together, a weight for each element (OLMo 2).
    FullWidth { eps: f32 },
}

impl Rules for Attention {
    fn check_rules(&self, broken: &mut Broken) {
        broken.divides(("num_key_value_heads", self.kv_heads), ("num_attention_heads", self.heads));
        broken.size(&[("num_attention_heads", self.heads), ("head_dim", self.head_dim)]);
        check_position(&self.position, self.head_dim, broken);
        let is_empty = matches!(self.span, AttentionSpan::Window(0) | AttentionSpan::Sinks { tokens: 0, .. });
        broken.check(!is_empty, || "`sliding_window` (0) holds at least one token".to_owned());
        broken.check(self.scale.is_finite() && self.scale > 0.0, || {
            format!("the scale of attention scores ({}) is positive", self.scale)
        });
    }
}

fn check_position(position: &Position, head_dim: usize, broken: &mut Broken) {
    let Position::Rope(rope) = position else { return };
    let fits = rope.dims > 0 && rope.dims.is_multiple_of(2) && rope.dims <= head_dim;
    broken.check(fits, || {
        format!("an even number of dimensions ({}) rotates, at most `head_dim` ({head_dim})", rope.dims)
    });
    broken.check(rope.is_sound(), || {
        format!("`rope_theta` ({}) and rope factors are positive, one factor for each pair", rope.base)
    });
}
