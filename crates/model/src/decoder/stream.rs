//! Where the residual stream begins, and how the head reads it.

use mlx::{Array, Dtype};

use crate::blocks::{CopiesBlock, HistoryBlock, ResidualStream};
use crate::blueprint::{Blueprint, HyperConnections, OUTPUT_HISTORY, StreamKind};
use crate::ops::Ops;
use crate::weights::{LoadError, Store};

/// Both ends of the stream, with their weights.
pub(super) enum StreamEnds {
    Plain,
    /// A sum in float32, which parts read in this dtype.
    F32(Dtype),
    Alternating(CopiesBlock),
    Hyper(HyperConnections),
    History(HistoryBlock),
}

impl StreamEnds {
    pub(super) fn load(blueprint: &Blueprint, store: &mut Store) -> Result<Self, LoadError> {
        let root = blueprint.names.root;
        Ok(match blueprint.stream {
            StreamKind::Plain => Self::Plain,
            StreamKind::F32 => Self::F32(store.activations()),
            StreamKind::Alternating(updates) => Self::Alternating(CopiesBlock::load(updates, store, root)?),
            StreamKind::Hyper(hyper) => Self::Hyper(hyper),
            StreamKind::History { .. } => {
                let (path, eps) = (format!("{root}.{OUTPUT_HISTORY}"), blueprint.final_norm.eps());
                Self::History(HistoryBlock::load(store, &path, eps)?)
            }
        })
    }

    /// The stream before the first layer, of what that reads, `[T, hidden]`.
    pub(super) fn begin(&self, ops: &Ops, embedded: &Array) -> mlx::Result<ResidualStream> {
        let sum = || ResidualStream::new(ops, embedded.clone());
        Ok(match self {
            Self::Plain | Self::History(_) => sum(),
            Self::F32(_) => ResidualStream::in_float32(ops, embedded)?,
            Self::Alternating(copies) => {
                let mut stream = sum();
                stream.copies = copies.copies(embedded)?;
                stream
            }
            Self::Hyper(hyper) => hyper.copies(ops, embedded)?,
        })
    }

    /// The stream that the stage before gave, `[T, hidden]`.
    pub(super) fn resume(&self, ops: &Ops, stream: Array) -> ResidualStream {
        match self {
            Self::F32(dtype) => ResidualStream::resumed(ops, stream, *dtype),
            // Networks with another stream than a sum are one stage.
            Self::Plain | Self::Alternating(_) | Self::Hyper(_) | Self::History(_) => {
                ResidualStream::new(ops, stream)
            }
        }
    }

    /// What the head reads of the stream behind the last layer, before its norm.
    pub(super) fn end(&self, ops: &Ops, mut stream: ResidualStream) -> mlx::Result<ResidualStream> {
        Ok(match self {
            Self::Plain => stream,
            Self::F32(_) => {
                stream.round_next_read();
                stream
            }
            Self::Alternating(copies) => ResidualStream::new(ops, copies.mean(&stream.copies)?),
            Self::Hyper(_) => {
                let shares = stream.read_shares.as_ref();
                let shares = shares.ok_or_else(|| mlx::Error::new("shares of the copies"))?;
                ResidualStream::new(ops, stream.of_copies(shares)?)
            }
            Self::History(history) => ResidualStream::new(ops, history.read(&mut stream)?),
        })
    }
}
