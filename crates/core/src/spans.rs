//! Spans of a prompt that one step computes whole: their tokens attend to each other in both directions, so that the keys
//! of each depend on all of them.
//!
//! Invariant: no step starts or ends inside a span, and no cached prefix is used up to there.

use std::ops::Range;

/// The spans of one prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<Range<usize>>);

impl Spans {
    /// Spans as [`crate::Request::spans`] has them; ones of a single position bind nothing. Panics unless they are
    /// ascending, apart, and in the prompt.
    pub(crate) fn new(spans: &[Range<usize>], prompt: usize) -> Self {
        let ends = std::iter::once(0).chain(spans.iter().map(|span| span.end));
        let apart = ends.zip(spans).all(|(before, span)| before <= span.start && span.start <= span.end);
        let inside = spans.last().is_none_or(|last| last.end <= prompt);
        assert!(apart && inside, "spans are ascending, apart, and in the prompt");
        Self(spans.iter().filter(|span| span.len() > 1).cloned().collect())
    }

    /// All of them, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.0.iter()
    }

    /// True if a step may start or end at a position.
    pub(crate) fn is_boundary(&self, position: usize) -> bool {
        self.floor(position) == position
    }

    /// The last boundary up to a position: the start of the span that it is inside of, or itself.
    pub(crate) fn floor(&self, position: usize) -> usize {
        match self.first_behind(position) {
            Some(span) => span.start.min(position),
            None => position,
        }
    }

    /// The last boundary up to a position that is the end of a block.
    pub(crate) fn floor_to_block(&self, position: usize, block_size: usize) -> usize {
        let mut end = position / block_size * block_size;
        while !self.is_boundary(end) {
            end = self.floor(end) / block_size * block_size;
        }
        end
    }

    /// The first end that a step can have which starts at the boundary `start`.
    pub(crate) fn least_end(&self, start: usize) -> usize {
        match self.first_behind(start) {
            Some(span) if span.start <= start => span.end,
            _ => start + 1,
        }
    }

    /// Where a step ends that starts at the boundary `start` and has room up to `end`: at the last boundary, or after
    /// the span that begins at its start.
    pub(crate) fn clip(&self, start: usize, end: usize) -> usize {
        self.floor(end).max(self.least_end(start))
    }

    /// True for the positions of a span.
    pub(crate) fn contains(&self, positions: &Range<usize>) -> bool {
        self.first_behind(positions.start) == Some(positions)
    }

    /// The first span that ends after a position.
    fn first_behind(&self, position: usize) -> Option<&Range<usize>> {
        self.0.get(self.0.partition_point(|span| span.end <= position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_boundaries() {
        let spans = Spans::new(&[2..5, 5..6, 6..9], 10);
        let boundaries: Vec<usize> = (0..=11).filter(|at| spans.is_boundary(*at)).collect();
        assert_eq!(boundaries, [0, 1, 2, 5, 6, 9, 10, 11]);
        assert_eq!([4, 5, 8, 9].map(|at| spans.floor(at)), [2, 5, 6, 9]);
        assert_eq!([0, 1, 2, 5, 6, 9].map(|at| spans.least_end(at)), [1, 2, 5, 6, 9, 10]);
        assert_eq!([1, 2, 3, 7, 20].map(|end| spans.clip(0, end)), [1, 2, 2, 6, 20]);
        assert_eq!([3, 5, 8].map(|end| spans.clip(2, end)), [5, 5, 6]);
        assert_eq!([11, 8, 5, 4].map(|at| spans.floor_to_block(at, 4)), [0, 0, 0, 0]);
        assert_eq!([10, 9, 8, 5].map(|at| spans.floor_to_block(at, 3)), [9, 9, 6, 0]);
        assert!(spans.contains(&(2..5)) && !spans.contains(&(2..6)) && !spans.contains(&(5..6)));
    }

    #[test]
    #[should_panic(expected = "apart")]
    fn spans_that_overlap_are_a_bug() {
        Spans::new(&[2..5, 4..6], 10);
    }
}
