//! A rank's part in tensor parallelism: which rank it is, and how it exchanges rows with the others.
//!
//! Invariant: what ranks computed apart is added in rank order, in float32, and rounded once, on each rank. A row's sum does not
//! depend on the rows beside it.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use mlx::{Array, Dtype};

use crate::pipeline::PipelineStage;

/// How the ranks of a group exchange rows.
pub trait Exchange {
    /// What each rank gives, `[rows, _]` f32, in rank order, of this rank's own part. Widths may differ, rows do not. Waits for
    /// all ranks: each of them makes the same calls in the same order. An error ends the group.
    fn gather(&self, own: &Array) -> mlx::Result<Vec<Array>>;
}

/// One rank of a group that computes a model together.
#[derive(Clone)]
pub struct Shard {
    rank: usize,
    ranks: usize,
    exchange: Rc<dyn Exchange>,
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.ranks)
    }
}

impl Shard {
    /// Rank `rank` of `ranks`; `None` unless it is below them.
    pub fn new(rank: usize, ranks: usize, exchange: Rc<dyn Exchange>) -> Option<Self> {
        (rank < ranks).then_some(Self { rank, ranks, exchange })
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// This rank's part of `count` rows that need not divide by the ranks.
    pub(crate) fn range(&self, count: usize) -> Range<usize> {
        count * self.rank / self.ranks..count * (self.rank + 1) / self.ranks
    }

    /// The sum of the ranks' parts, `[.., width]` each, in the parts' dtype.
    pub(crate) fn sum(&self, own: &Array) -> mlx::Result<Array> {
        let dtype = own.dtype()?;
        let parts = self.exchange.gather(&rows(own)?)?;
        let mut parts = parts.into_iter();
        let first = parts.next().ok_or_else(|| mlx::Error::new("an exchange with parts"))?;
        let sum = parts.fold(first, |sum, part| sum + part);
        sum.reshape(own.shape())?.astype(dtype)
    }

    /// The ranks' columns beside each other, f32, in rank order: `[rows, _]` of each.
    pub(crate) fn join(&self, own: &Array) -> mlx::Result<Array> {
        let parts = self.exchange.gather(&rows(own)?)?;
        mlx::concatenate(&parts.iter().collect::<Vec<_>>(), -1)
    }
}

/// What of a network a process computes; the default is all of it.
#[derive(Debug, Clone, Default)]
pub struct ModelPart {
    /// Of several stages, which one: some of the layers.
    pub stage: Option<PipelineStage>,
    /// Of several ranks, which one: a part of every layer of the stage.
    pub shard: Option<Shard>,
}

/// Which part of a network a rank computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// Widths are cut at multiples of this where they are multiples of it: groups of quantized weights stay whole.
    pub(crate) unit: usize,
}

impl Part {
    /// The columns of a width, which need not divide evenly.
    pub(crate) fn columns(self, width: usize) -> Range<usize> {
        let unit = if width.is_multiple_of(self.unit.max(1)) { self.unit.max(1) } else { 1 };
        let units = width / unit;
        let cut = |rank: usize| units * rank / self.ranks.max(1) * unit;
        cut(self.rank)..cut(self.rank + 1)
    }

    /// How many columns of a width; an error in one line where some rank would have none.
    pub(crate) fn width(self, width: usize, what: &str) -> Result<usize, String> {
        // Of all ranks, the first has the fewest columns.
        match (Self { rank: 0, ..self }).columns(width).len() {
            0 => Err(format!("{width} {what} are too few for {} ranks", self.ranks)),
            _ => Ok(self.columns(width).len()),
        }
    }

    /// How many of these heads, which divide evenly or not at all.
    pub(crate) fn heads(self, count: usize, what: &str) -> Result<usize, String> {
        match count.checked_rem(self.ranks) {
            Some(0) if count > 0 => Ok(count / self.ranks),
            _ => Err(format!("{count} {what} do not divide by {}", self.ranks)),
        }
    }
}

/// `[.., width]` as `[rows, width]`, f32.
fn rows(x: &Array) -> mlx::Result<Array> {
    x.reshape(&[-1, x.dim(-1)?])?.astype(Dtype::F32)
}
