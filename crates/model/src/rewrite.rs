//! From the tensors a checkpoint has to the tensors a blueprint names.
//!
//! Rewrites are data, run once at load over lazy arrays. A difference that is resolved here never
//! reaches the forward pass. A checkpoint mlx-lm has already converted passes through untouched: a
//! rewrite whose source names are absent does nothing.

use crate::pattern::Pattern;

/// One step from published tensors to ours. Of a packed module, codes, scales and biases change alike, and the paths in
/// its quantization follow.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum WeightRewrite {
    /// Discards tensors no module reads: rotary tables, a tied head.
    Drop { tensors: Pattern },
    /// Discards tensors in checkpoints that have another tensor.
    DropBeside { tensors: Pattern, other: Pattern },
    /// Discards layers after so many: those that predict further tokens.
    DropLayersFrom { layers: usize },
    /// Discards all others.
    Keep { tensors: Vec<Pattern> },
    /// Another name.
    Rename { from: Pattern, to: Pattern },
    /// One tensor for several modules, which share it.
    Share { from: Pattern, to: Vec<Pattern> },
    /// Rows of outputs go to several tensors, so many to each.
    Split { from: Pattern, to: Vec<(Pattern, usize)> },
    /// Outputs go to several tensors in turn.
    Deinterleave { from: Pattern, to: Vec<Pattern> },
    /// Outputs come in another order: `rows[i]` becomes output `i`.
    TakeRows { tensors: Pattern, rows: Vec<usize> },
    /// Inputs of matrices come in another order: `inputs[i]` becomes input `i`.
    TakeInputs { tensors: Pattern, inputs: Vec<usize> },
    /// Matrices that were stored `[in, out]`, perhaps of each expert.
    Transposed { tensors: Pattern },
    /// Numbers that are kept in order, in another shape.
    Reshape { tensors: Pattern, shape: Vec<usize> },
    /// Joins the tensors that differ only in `#` along a new leading axis.
    StackExperts { from: Pattern, to: Pattern, experts: usize },
    /// Joins the rows of unpacked tensors, one after the other.
    Join { from: Vec<Pattern>, to: Pattern },
    /// One matrix of all experts, one after the other, as a stack.
    Unstack { from: Pattern, to: Pattern, experts: usize },
    /// The one projection from latents to keys and values of all heads, apart and for each head: `embed_q`, which is the
    /// keys' part turned, and `unembed_out`. A packed one is unpacked.
    SplitLatent { from: Pattern, heads: usize, nope_dim: usize, v_head_dim: usize },
    /// Divides each input's weights by their length over all outputs, unless they are packed.
    NormalizeInputs { tensors: Pattern },
    /// Divides each output's weights by their length over all inputs, unless they are packed.
    NormalizeOutputs { tensors: Pattern },
    /// Multiplies a tensor by the one beside it, which becomes ones: norms of keys that queries carry instead.
    MoveFactors { from: Pattern, to: Pattern },
    /// Reorders three axes, unless the last already has length `unless_last`.
    Transpose { tensors: Pattern, order: [i32; 3], unless_last: i32 },
    /// From a gate's logits to the shares of the stream and of what joins it: `√(1 − σ²)`, at least `√0.001`, and `σ`, the
    /// sigmoid of the logits over 0.3 (Muse Spark).
    GateShares { from: Pattern, stays: Pattern, joins: Pattern },
    /// A bias of zeros for matrices that have none (Whisper's keys).
    ZeroBias { weights: Pattern, bias: Pattern },
    /// Rounds numbers to bfloat16, in which the reference keeps them.
    RoundToBf16 { tensors: Pattern, when: When },
    /// Adds a number: one to norms stored as `weight − 1`.
    Add { tensors: Pattern, amount: f32, when: When },
    /// Multiplies all numbers by one factor, or the numbers of each row by its own.
    Scale { tensors: Pattern, factors: Vec<f32>, when: When },
}

/// Which checkpoints a step is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// Checkpoints published with such a tensor: converted ones already carry the result.
    Published(Pattern),
    /// Checkpoints with such a tensor whose last axis has another length.
    LastAxisIsNot(Pattern, i32),
}
