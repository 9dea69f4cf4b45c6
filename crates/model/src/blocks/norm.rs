//! Normalisation, and the residual stream it reads.

use mlx::{Array, Dtype};

use crate::forward::LogitRows;
use crate::ops::{Joined, Ops, Term};
use crate::params::Param;

/// A norm over the last axis, with its weights.
pub(crate) struct NormBlock {
    ops: Ops,
    kind: NormKind,
    eps: f32,
}

enum NormKind {
    /// `weight`: `[width]`.
    Rms {
        weight: Param,
    },
    /// Both `[width]`; `ones` are the norm's weight.
    ScaledRms {
        weight: Param,
        ones: Param,
    },
    /// Both `[width]`.
    Layer {
        weight: Param,
        bias: Option<Param>,
    },
    /// `[1]`.
    Gain {
        weight: Param,
    },
    Absent,
}

impl NormBlock {
    pub(crate) fn rms(ops: Ops, weight: Param, eps: f32) -> Self {
        Self { ops, kind: NormKind::Rms { weight }, eps }
    }

    pub(crate) fn scaled_rms(ops: Ops, weight: Param, ones: Param, eps: f32) -> Self {
        Self { ops, kind: NormKind::ScaledRms { weight, ones }, eps }
    }

    pub(crate) fn layer(ops: Ops, weight: Param, bias: Option<Param>, eps: f32) -> Self {
        Self { ops, kind: NormKind::Layer { weight, bias }, eps }
    }

    pub(crate) fn gain(ops: Ops, weight: Param) -> Self {
        Self { ops, kind: NormKind::Gain { weight }, eps: 0.0 }
    }

    pub(crate) fn absent(ops: Ops) -> Self {
        Self { ops, kind: NormKind::Absent, eps: 0.0 }
    }

    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        match &self.kind {
            NormKind::Absent => Ok(x.clone()),
            NormKind::Gain { weight } => Ok(x * weight),
            NormKind::Rms { weight } => self.ops.rms_norm(x, weight, self.eps),
            NormKind::ScaledRms { weight, ones } => self.ops.rms_norm(&(x * weight), ones, self.eps),
            NormKind::Layer { weight, bias } => self.ops.layer_norm(x, weight, bias.as_deref(), self.eps),
        }
    }

    /// How its output joins the stream where kernels can do both at once.
    fn joined(&self) -> Option<Joined> {
        match &self.kind {
            NormKind::Rms { weight } => Some(Joined::Normed { weight: Array::clone(weight), eps: self.eps }),
            NormKind::ScaledRms { .. }
            | NormKind::Layer { .. }
            | NormKind::Gain { .. }
            | NormKind::Absent => None,
        }
    }

    /// `sum + term`, and its norm.
    fn forward_sum(&self, sum: &Array, term: &Term) -> mlx::Result<(Array, Array)> {
        match &self.kind {
            NormKind::Rms { weight } => self.ops.add_rms_norm(sum, term, weight, self.eps),
            NormKind::Layer { weight, bias } => {
                self.ops.add_layer_norm(sum, term, weight, bias.as_deref(), self.eps)
            }
            NormKind::ScaledRms { .. } | NormKind::Gain { .. } | NormKind::Absent => {
                let sum = self.ops.add(sum, term)?;
                let normed = self.forward(&sum)?;
                Ok((sum, normed))
            }
        }
    }
}

/// The residual stream, `[T, hidden]`: a sum whose last term may still be outstanding, so that the
/// addition and the norm that follows it can be one kernel.
#[derive(Clone)]
pub(crate) struct ResidualStream {
    ops: Ops,
    sum: Array,
    pending: Option<Term>,
    /// A term that joins behind the next layer.
    deferred: Option<Array>,
    /// What the sum was at the beginnings of blocks of layers.
    history: Vec<Array>,
    /// Copies, where layers compute one and predict the others, or read a mix of them.
    pub(crate) copies: Vec<Array>,
    /// What the next part reads of each copy, `[T, copies]` f32, where parts read a mix of them.
    pub(crate) read_shares: Option<Array>,
    /// How parts read a stream of another dtype than theirs.
    reads: Option<StreamReads>,
}

/// How parts read a stream of another dtype than theirs.
#[derive(Clone, Copy)]
struct StreamReads {
    /// That of parts.
    dtype: Dtype,
    /// The next read is rounded to bfloat16.
    rounds_next: bool,
}

impl ResidualStream {
    pub(crate) fn new(ops: &Ops, x: Array) -> Self {
        Self {
            ops: ops.clone(),
            sum: x,
            pending: None,
            deferred: None,
            history: Vec::new(),
            copies: Vec::new(),
            read_shares: None,
            reads: None,
        }
    }

    /// A stream in float32, which parts read in the dtype of `x`; the first read is rounded to bfloat16.
    pub(crate) fn in_float32(ops: &Ops, x: &Array) -> mlx::Result<Self> {
        let reads = Some(StreamReads { dtype: x.dtype()?, rounds_next: true });
        Ok(Self { reads, ..Self::new(ops, x.astype(Dtype::F32)?) })
    }

    /// A stream in float32 that another stage began, which parts read in `dtype`.
    pub(crate) fn resumed(ops: &Ops, x: Array, dtype: Dtype) -> Self {
        Self { reads: Some(StreamReads { dtype, rounds_next: false }), ..Self::new(ops, x) }
    }

    /// `x` as it is, with all that was added. Fails where it is more than one sum.
    pub(crate) fn plain(&self) -> mlx::Result<Array> {
        let Self { deferred: None, history, copies, read_shares: None, .. } = self else {
            return Err(mlx::Error::new("a stream that is one sum"));
        };
        if !history.is_empty() || !copies.is_empty() {
            return Err(mlx::Error::new("a stream that is one sum, without a history or copies"));
        }
        match &self.pending {
            Some(pending) => self.ops.add(&self.sum, pending),
            None => Ok(self.sum.clone()),
        }
    }

    /// All that it holds.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let outstanding = self.pending.iter().map(|term| &term.rows).chain(&self.deferred);
        let several = self.history.iter().chain(&self.copies).chain(&self.read_shares);
        std::iter::once(&self.sum).chain(outstanding).chain(several)
    }

    /// Of a stream in float32: the next read is rounded to bfloat16.
    pub(crate) fn round_next_read(&mut self) {
        if let Some(reads) = &mut self.reads {
            reads.rounds_next = true;
        }
    }

    /// `x = value`
    pub(crate) fn set(&mut self, value: Array) {
        self.sum = value;
        self.pending = None;
    }

    /// `x *= factor`, `[1]`
    pub(crate) fn scale(&mut self, factor: &Array) -> mlx::Result<()> {
        self.sum = match self.pending.take() {
            Some(pending) => self.ops.add_scaled(&self.sum, &self.ops.joined(&pending)?, factor)?,
            None => &self.sum * factor,
        };
        Ok(())
    }

    /// What it was at the beginnings of blocks.
    pub(crate) fn history(&self) -> &[Array] {
        &self.history
    }

    /// Begins a block: what it is joins the history, and the sum begins with nothing.
    pub(crate) fn begin_block(&mut self) -> mlx::Result<()> {
        let now = self.value()?.clone();
        self.sum = Array::zeros(now.shape(), now.dtype()?)?;
        self.history.push(now);
        Ok(())
    }

    /// `x += term` behind the next layer.
    pub(crate) fn defer(&mut self, term: Array) {
        self.deferred = Some(term);
    }

    /// Adds what was deferred.
    pub(crate) fn add_deferred(&mut self) -> mlx::Result<()> {
        self.deferred.take().map_or(Ok(()), |term| self.add(term))
    }

    /// `x += term`, later.
    pub(crate) fn add(&mut self, term: Array) -> mlx::Result<()> {
        self.add_later(Term::plain(term))
    }

    /// `x += factor · term`, later.
    pub(crate) fn add_scaled(&mut self, term: Array, factor: f32) -> mlx::Result<()> {
        self.add_later(Term { rows: term, joined: Joined::Scaled(factor) })
    }

    /// `x += norm(term)`, later.
    pub(crate) fn add_normed(&mut self, term: Array, norm: &NormBlock) -> mlx::Result<()> {
        match norm.joined() {
            Some(joined) => self.add_later(Term { rows: term, joined }),
            None => self.add(norm.forward(&term)?),
        }
    }

    fn add_later(&mut self, term: Term) -> mlx::Result<()> {
        if let Some(pending) = self.pending.replace(term) {
            self.sum = self.ops.add(&self.sum, &pending)?;
        }
        Ok(())
    }

    /// `x += term` in these rows, `[n]` i32, each once.
    pub(crate) fn add_to_rows(&mut self, rows: &Array, term: &Array) -> mlx::Result<()> {
        self.sum = self.value()?.clone().scatter_add_rows(rows, term)?;
        Ok(())
    }

    /// `x`, with all that was added.
    pub(crate) fn value(&mut self) -> mlx::Result<&Array> {
        if let Some(pending) = self.pending.take() {
            self.sum = self.ops.add(&self.sum, &pending)?;
        }
        Ok(&self.sum)
    }

    /// `norm(x)`, with all that was added.
    pub(crate) fn norm(&mut self, norm: &NormBlock) -> mlx::Result<Array> {
        let normed = match self.pending.take() {
            None => norm.forward(&self.sum)?,
            Some(pending) => {
                let (sum, normed) = norm.forward_sum(&self.sum, &pending)?;
                self.sum = sum;
                normed
            }
        };
        let Some(reads) = &mut self.reads else { return Ok(normed) };
        match std::mem::take(&mut reads.rounds_next) {
            true => normed.astype(Dtype::Bf16)?.astype(reads.dtype),
            false => normed.astype(reads.dtype),
        }
    }

    /// Keeps only these rows of the stream.
    pub(crate) fn take_rows(&mut self, rows: &LogitRows) -> mlx::Result<()> {
        self.sum = rows.of(&self.sum)?;
        if let Some(pending) = &mut self.pending {
            pending.rows = rows.of(&pending.rows)?;
        }
        for array in self.history.iter_mut().chain(&mut self.copies).chain(&mut self.read_shares) {
            *array = rows.of(array)?;
        }
        Ok(())
    }
}
