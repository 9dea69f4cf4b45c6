//! The rows of a batch by which stored keys and values they read: with an unquantized prefix, rows at its positions
//! read another pool than later rows; and which of them see later positions.

use mlx::Array;

use super::rows::{order_of, singles_and_chunks};
use crate::batch::{Segment, SpanRuns, UnattendedRows, span_reach};
use crate::kv_cache::VisibleTo;

/// The segments of a batch, split at the end of the unquantized prefix.
pub(super) struct RowSplit<'a> {
    all: &'a [Segment],
    /// Rows at positions of the prefix.
    prefix: Vec<Segment>,
    /// The other rows.
    later: Vec<Segment>,
    /// For each row of the pass, the position behind the last key that it sees where attention is bidirectional; empty if
    /// no row sees a later one. Of later keys, a row sees those whose own rows have the same end.
    ends: Vec<i32>,
    unattended: &'a [UnattendedRows],
}

/// Which keys rows see beside those that their positions say.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    /// See [`RowSplit::ends`].
    pub(super) ends: Option<&'a [i32]>,
    unattended: &'a [UnattendedRows],
}

impl Sight<'_> {
    /// Rows see what lies before them.
    pub(super) const CAUSAL: Self = Self { ends: None, unattended: &[] };

    /// The first position of a segment's sequence that no row sees.
    pub(super) fn first_unattended(self, segment: &Segment) -> Option<usize> {
        self.unattended.iter().find(|of| of.rows.contains(&segment.first)).map(|of| of.from)
    }
}

impl<'a> RowSplit<'a> {
    /// `prefix`: length of the unquantized prefix in tokens, if there is one. `spans`: rows that attend in both directions.
    pub(super) fn new(
        segments: &'a [Segment],
        prefix: Option<usize>,
        (rows, spans): (usize, &[SpanRuns]),
    ) -> mlx::Result<Self> {
        let ends = ends(segments, rows, spans)?;
        let mut split = Self { all: segments, prefix: Vec::new(), later: Vec::new(), ends, unattended: &[] };
        let Some(prefix) = prefix else { return Ok(split) };
        let part = |segment: &Segment, from: usize, to: usize| Segment {
            first: segment.first + from,
            len: to - from,
            context: segment.context + from,
            ..segment.clone()
        };
        for segment in segments {
            let border = segment.first + prefix.saturating_sub(segment.context).min(segment.len);
            // The rows of a span read one pool, which must have the keys of all of them.
            let mut spans = spans.iter().map(|span| span_reach(span));
            let cut = spans.find(|span| span.start < border && border < span.end);
            let early = cut.map_or(border, |span| span.start) - segment.first;
            if early > 0 {
                split.prefix.push(part(segment, 0, early));
            }
            if early < segment.len {
                split.later.push(part(segment, early, segment.len));
            }
        }
        Ok(split)
    }

    /// With tokens that no row attends to.
    pub(super) fn with_unattended(self, unattended: &'a [UnattendedRows]) -> Self {
        Self { unattended, ..self }
    }

    /// What changes which keys rows see.
    pub(super) fn sight(&self) -> Sight<'_> {
        Sight { ends: self.ends(), unattended: self.unattended }
    }

    /// For each row of the pass, the position behind the last key that it sees where attention is bidirectional; `None` if
    /// no row sees a later one.
    pub(super) fn ends(&self) -> Option<&[i32]> {
        (!self.ends.is_empty()).then_some(&self.ends)
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

fn ends(segments: &[Segment], rows: usize, spans: &[SpanRuns]) -> mlx::Result<Vec<i32>> {
    if spans.is_empty() {
        return Ok(Vec::new());
    }
    let mut ends = vec![0; rows];
    for segment in segments {
        for (row, end) in ends.iter_mut().enumerate().skip(segment.first).take(segment.len) {
            *end = (segment.context + row - segment.first + 1) as i32;
        }
    }
    for runs in spans {
        let span = span_reach(runs);
        let within =
            |segment: &&Segment| segment.first <= span.start && span.end <= segment.first + segment.len;
        let segment = segments.iter().find(within);
        let segment = segment.ok_or_else(|| mlx::Error::new("a span lies within a segment"))?;
        for run in runs {
            if let Some(rows) = ends.get_mut(run.clone()) {
                rows.fill((segment.context + span.end - segment.first) as i32);
            }
        }
    }
    Ok(ends)
}
