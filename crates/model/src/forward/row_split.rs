//! The rows of a batch by which stored keys and values they read: with an unquantized prefix, rows at its positions
//! read another pool than later rows.

use mlx::Array;

use super::rows::{order_of, singles_and_chunks};
use crate::{Segment, VisibleTo};

/// The segments of a batch, split at the end of the unquantized prefix.
pub(super) struct RowSplit<'a> {
    all: &'a [Segment],
    /// Rows at positions of the prefix.
    prefix: Vec<Segment>,
    /// The other rows.
    later: Vec<Segment>,
}

impl<'a> RowSplit<'a> {
    /// `prefix`: length of the unquantized prefix in tokens, if there is one.
    pub(super) fn new(segments: &'a [Segment], prefix: Option<usize>) -> Self {
        let mut split = Self { all: segments, prefix: Vec::new(), later: Vec::new() };
        let Some(prefix) = prefix else { return split };
        let part = |segment: &Segment, from: usize, to: usize| Segment {
            first: segment.first + from,
            len: to - from,
            context: segment.context + from,
            ..segment.clone()
        };
        for segment in segments {
            let early = prefix.saturating_sub(segment.context).min(segment.len);
            if early > 0 {
                split.prefix.push(part(segment, 0, early));
            }
            if early < segment.len {
                split.later.push(part(segment, early, segment.len));
            }
        }
        split
    }

    /// The rows that read a group's keys and values.
    pub(super) fn reading(&self, visible: VisibleTo) -> &[Segment] {
        match visible {
            VisibleTo::All => self.all,
            VisibleTo::PrefixRows => &self.prefix,
            VisibleTo::LaterRows => &self.later,
        }
    }

    /// The rows whose keys and values are written to a group.
    pub(super) fn written(&self, visible: VisibleTo) -> &[Segment] {
        match visible {
            VisibleTo::All | VisibleTo::LaterRows => self.all,
            VisibleTo::PrefixRows => &self.prefix,
        }
    }

    /// For each row of the batch, its index when the rows that read a group (single ones first) and then those of the
    /// prefix are laid end to end; `None` if that is the batch's own order.
    pub(super) fn order(&self, visible: VisibleTo, rows: usize) -> mlx::Result<Option<Array>> {
        let in_order = |segments| {
            let (singles, chunks) = singles_and_chunks(segments);
            singles.into_iter().chain(chunks).map(Segment::rows)
        };
        match visible {
            VisibleTo::All => order_of(in_order(self.all), rows),
            VisibleTo::LaterRows => order_of(in_order(&self.later).chain(in_order(&self.prefix)), rows),
            VisibleTo::PrefixRows => Ok(None),
        }
    }
}
