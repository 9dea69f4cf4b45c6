//! A rank's part in tensor parallelism: which rank it is, and how it exchanges rows with the others.
//!
//! Invariant: what ranks computed apart is added in rank order, in float32, and rounded once, on each rank. A row's sum does not
//! depend on the rows beside it.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use mlx::{Array, Dtype};

use crate::pipeline::PipelineStage;

/// Ranks exchange columns of a multiple of this: packets between GPUs have eight bytes.
const COLUMNS_UNIT: usize = 4;

/// How the ranks of a group exchange rows.
pub trait Exchange {
    /// What each rank gives, `[rows, width]` of one float type, in rank order, in that type or in f32. Each rank makes the same
    /// calls, of the same sizes, in the same order. An error ends the group.
    fn gather(&self, own: &Array) -> mlx::Result<Vec<Array>>;

    /// The sum of what each rank gives, `[rows, width]` of one float type, in that type: added in rank order in f32 and rounded once.
    fn sum(&self, own: &Array) -> mlx::Result<Array> {
        let mut parts = self.gather(&own.astype(Dtype::F32)?)?.into_iter();
        let first = parts.next().ok_or_else(|| mlx::Error::new("an exchange with parts"))?;
        parts.fold(first, |sum, part| sum + part).astype(own.dtype()?)
    }

    /// The next exchanges are of another computation, and run one behind the other. `after`: an array that is computed before them.
    fn begin(&self, _after: Option<&Array>) {}

    /// Evaluated arrays that exchanges read beside rows.
    fn arrays(&self) -> Vec<Array> {
        Vec::new()
    }
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

    /// A pass begins.
    pub(crate) fn begin_pass(&self) {
        self.exchange.begin(None);
    }

    /// Evaluated arrays that exchanges read beside rows.
    pub(crate) fn arrays(&self) -> Vec<Array> {
        self.exchange.arrays()
    }

    /// The sum of the ranks' parts, `[.., width]` each, in the parts' dtype.
    pub(crate) fn sum(&self, own: &Array) -> mlx::Result<Array> {
        self.exchange.sum(&rows(own)?)?.reshape(own.shape())
    }

    /// The `count` tokens that the first rank has chosen from the logits of the last pass, `[count]` i32, on each rank. `own`: the first
    /// rank's; `None` on the others.
    pub fn first_ranks_tokens(
        &self,
        own: Option<&Array>,
        count: usize,
        logits: &Array,
    ) -> mlx::Result<Array> {
        self.exchange.begin(Some(logits));
        let (count, padded) = (count as i32, count.next_multiple_of(COLUMNS_UNIT) as i32);
        // Float32 has all integers up to 2^24, and no vocabulary is larger.
        let zeros = |count: i32| Array::zeros(&[count], Dtype::F32);
        let own = match own {
            Some(tokens) => mlx::concatenate(&[&tokens.astype(Dtype::F32)?, &zeros(padded - count)?], 0)?,
            None => zeros(padded)?,
        };
        let tokens = self.exchange.sum(&own.reshape(&[1, padded])?)?.reshape(&[padded])?;
        tokens.slice(&[0], &[count])?.astype(Dtype::I32)
    }

    /// The ranks' columns of `[rows, columns]` beside each other, in rank order, in their type or in f32.
    pub(crate) fn join(&self, own: &Array, columns: usize) -> mlx::Result<Array> {
        let own = rows(own)?;
        let [count, width] = own.dims()?;
        let padding = columns.div_ceil(self.ranks).next_multiple_of(COLUMNS_UNIT) as i32 - width;
        let padded = match padding {
            ..=0 => own,
            padding => mlx::concatenate(&[&own, &Array::zeros(&[count, padding], own.dtype()?)?], -1)?,
        };
        let parts = self.exchange.gather(&padded)?.into_iter().enumerate();
        let parts = parts.map(|(rank, part)| {
            let width = Self { rank, ..self.clone() }.range(columns).len() as i32;
            if part.dim(-1)? == width { Ok(part) } else { part.slice(&[0, 0], &[count, width]) }
        });
        mlx::concatenate(&parts.collect::<mlx::Result<Vec<_>>>()?.iter().collect::<Vec<_>>(), -1)
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

/// `[.., width]` as `[rows, width]`.
fn rows(x: &Array) -> mlx::Result<Array> {
    x.reshape(&[-1, x.dim(-1)?])
}
