//! The input of one forward pass: tokens of several sequences end to end.

use std::ops::Range;
use std::rc::Rc;

use mlx::Array;
use omnibus_kv::BlockTable;
use serde::{Deserialize, Serialize};

use crate::cross_weights::CrossWeights;

/// Tokens of several sequences, end to end, padded at the end to one of a few sizes, for compiled kernels.
pub struct Batch {
    /// `[T]` i32: token ids, every one below the vocabulary's size. Rows past the last segment are
    /// padding: they write to the scratch blocks, which are never read.
    pub tokens: Array,
    /// The sequences, in the order of their rows, without gaps.
    pub segments: Vec<Segment>,
    /// Rows that need logits, ascending.
    pub logits_at: Vec<usize>,
    /// Of sequences with pictures, videos or sound; `None` if no row of the pass needs it.
    pub multimodal: Option<MultimodalRows>,
    /// Hidden states that the pass gives besides.
    pub hidden: Option<HiddenRows>,
}

/// Hidden states of a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenRows {
    /// Of which rows, at least one, in this order.
    pub rows: Vec<usize>,
    /// Of which places; each gives one array.
    pub places: Vec<HiddenPlace>,
}

/// Where hidden states are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenPlace {
    /// The residual stream behind a layer, by its index in the network.
    Layer(usize),
    /// The norm that the head reads.
    FinalNorm,
}

/// Rows of a pass, or positions of a prompt, that attend to each other in both directions: runs of them, ascending. What is
/// between the runs of a span is causal, and not seen by those before it.
pub type SpanRuns = Vec<Range<usize>>;

/// All that a span reaches over, what is between its runs included.
pub fn span_reach(span: &[Range<usize>]) -> Range<usize> {
    span.first().map_or(0, |first| first.start)..span.last().map_or(0, |last| last.end)
}

impl Batch {
    /// Whether some rows see later ones, in layers that attend in both directions.
    pub(crate) fn has_bidirectional_rows(&self) -> bool {
        self.multimodal.as_ref().is_some_and(|rows| !rows.bidirectional.is_empty())
    }
}

/// What pictures, videos and sound change in a pass. Rows of sequences without them compute the same as alone.
#[derive(Default)]
pub struct MultimodalRows {
    /// Rows that have features instead of their token's embedding.
    pub features: Option<FeatureRows>,
    /// Position in time, height and width of every row of the pass, padding included, by which models with multimodal
    /// rotary positions rotate. `None` where each row is at its place in its sequence.
    pub positions: Option<Vec<[i32; 3]>>,
    /// Rows that attend to each other in both directions, in layers that do so, ascending. Each span lies within one segment,
    /// whole: a chunk must not end inside one ([`bidirectional_spans`](crate::Blueprint::bidirectional_spans)).
    pub bidirectional: Vec<SpanRuns>,
    /// Rows that attend to pictures in layers of cross attention, in order: each row to one group of pictures at most. Others
    /// skip these layers.
    pub cross: Vec<CrossRows>,
    /// Of segments of sequences with tokens that no row attends to.
    pub unattended: Vec<UnattendedRows>,
}

/// A segment of a sequence whose last tokens no row attends to, and which attend to all others: the expansion of a query of
/// late interaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnattendedRows {
    /// The segment's rows of the pass.
    pub rows: Range<usize>,
    /// Position of the first of these tokens in the sequence.
    pub from: usize,
}

impl MultimodalRows {
    /// Nothing but positions, as in steps that decode.
    pub(crate) fn are_positions(&self) -> bool {
        self.features.is_none()
            && self.bidirectional.is_empty()
            && self.cross.is_empty()
            && self.unattended.is_empty()
    }
}

impl Batch {
    /// Whether some rows are attended to by none.
    pub(crate) fn has_unattended_rows(&self) -> bool {
        self.multimodal.as_ref().is_some_and(|rows| !rows.unattended.is_empty())
    }
}

/// Consecutive rows of a pass that attend to the same pictures.
#[derive(Clone)]
pub struct CrossRows {
    #[allow(missing_docs)]
    pub rows: Range<usize>,
    /// Keys and values of the pictures.
    pub states: CrossStates,
    /// Collects what the rows attend to.
    pub weights: Option<Rc<CrossWeights>>,
}

/// Keys and values of pictures' rows in each layer of cross attention, made by [`Model::cross_states`](crate::Model::cross_states).
#[derive(Clone)]
pub struct CrossStates(pub(crate) Rc<[[Array; 2]]>);

impl CrossStates {
    /// Every array.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.0.iter().flatten()
    }

    /// Keys and values in the layer of this number, both `[1, kv_heads, n, head_dim]`.
    pub(crate) fn of_layer(&self, number: usize) -> mlx::Result<[&Array; 2]> {
        let of_layer = self.0.get(number).map(|[keys, values]| [keys, values]);
        of_layer.ok_or_else(|| mlx::Error::new("keys and values of each layer of cross attention"))
    }

    /// Prefixes of several pictures, one after the other.
    pub fn joined(several: &[&Self]) -> mlx::Result<Self> {
        if let [one] = several {
            return Ok((*one).clone());
        }
        let layers = several.first().map_or(0, |first| first.0.len());
        let join = |number: usize, which: usize| {
            let parts = several.iter().filter_map(|states| states.0.get(number)?.get(which));
            mlx::concatenate(&parts.collect::<Vec<_>>(), 2)
        };
        let layer = |number: usize| Ok([join(number, 0)?, join(number, 1)?]);
        (0..layers).map(layer).collect::<mlx::Result<Vec<_>>>().map(|layers| Self(layers.into()))
    }
}

/// Features in the place of tokens.
pub struct FeatureRows {
    /// Rows of the pass, each once.
    pub rows: Vec<usize>,
    /// In the order of `rows`, `[n, hidden]`.
    pub features: Array,
    /// What joins the stream of these rows behind each of the first layers, `[n, hidden]` each.
    pub deepstack: Vec<Array>,
}

/// Half of the SHA-256 of an adapter's files. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u128);

/// One sequence's consecutive rows of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its first row.
    pub first: usize,
    /// How many rows.
    pub len: usize,
    /// Tokens of the sequence before this segment, which is the position of its first row.
    pub context: usize,
    /// Length of the prompt, in tokens; rotations that depend on a sequence's length take it from here.
    pub prompt: usize,
    /// How many of its rows, the last ones, are sampled: with draft tokens several, in a chunk of a prompt perhaps none.
    /// A recurrence keeps the state after each of them, the `i`-th in the `i`-th slot of its table; the first slot also has
    /// the state before the segment.
    pub samples: usize,
    /// The loaded adapter that its rows are computed with.
    pub adapter: Option<AdapterId>,
    /// The blocks it reads and writes, one table for each cache group.
    pub tables: Vec<BlockTable>,
}

impl Segment {
    /// Its rows in the batch.
    pub fn rows(&self) -> Range<usize> {
        self.first..self.first + self.len
    }

    /// Position after its last row.
    pub fn end(&self) -> usize {
        self.context + self.len
    }
}
