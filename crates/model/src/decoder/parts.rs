//! The rows of a batch by what they see: where a model has openings, rows in them see other keys and values than those
//! behind.

use mlx::Array;

use super::step::order_of;
use crate::{Seen, Segment};

/// The segments of a batch by what their rows see.
pub(super) struct Parts<'a> {
    /// All.
    all: &'a [Segment],
    /// Rows at positions of the opening.
    opening: Vec<Segment>,
    /// The others.
    behind: Vec<Segment>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(segments: &'a [Segment], opening: Option<usize>) -> Self {
        let mut parts = Self { all: segments, opening: Vec::new(), behind: Vec::new() };
        let Some(opening) = opening else { return parts };
        let part = |segment: &Segment, from: usize, to: usize| Segment {
            first: segment.first + from,
            len: to - from,
            context: segment.context + from,
            ..segment.clone()
        };
        for segment in segments {
            let early = opening.saturating_sub(segment.context).min(segment.len);
            if early > 0 {
                parts.opening.push(part(segment, 0, early));
            }
            if early < segment.len {
                parts.behind.push(part(segment, early, segment.len));
            }
        }
        parts
    }

    /// The rows that see what a group stores.
    pub(super) fn seeing(&self, seen: Seen) -> &[Segment] {
        match seen {
            Seen::ByAll => self.all,
            Seen::ByOpening => &self.opening,
            Seen::Behind => &self.behind,
        }
    }

    /// Where each row of the batch is when the rows that see a group, single ones first, and then those of the opening
    /// are laid end to end; `None` if just there.
    pub(super) fn order(&self, seen: Seen, rows: usize) -> mlx::Result<Option<Array>> {
        let in_order = |segments| {
            let (singles, chunks) = singles_and_chunks(segments);
            singles.into_iter().chain(chunks)
        };
        match seen {
            Seen::ByAll => order_of(in_order(self.all), rows),
            Seen::Behind => order_of(in_order(&self.behind).chain(in_order(&self.opening)), rows),
            Seen::ByOpening => Ok(None),
        }
    }

    /// The rows whose keys and values a group stores.
    pub(super) fn stored(&self, seen: Seen) -> &[Segment] {
        match seen {
            Seen::ByAll | Seen::Behind => self.all,
            Seen::ByOpening => &self.opening,
        }
    }
}

/// Single rows attend as one batch, chunks each on their own.
pub(super) fn singles_and_chunks(segments: &[Segment]) -> (Vec<&Segment>, Vec<&Segment>) {
    segments.iter().partition(|one| one.len == 1)
}
