//! Positions of a prompt with pictures and videos in time, height and width.
//!
//! Text goes on by one on all three axes. The rows of a picture begin behind the text before it, each at its row and its
//! column, and the text behind them continues after the largest of their positions. Source: arXiv 2409.12191 §2.1.
//!
//! Invariant: pure. Positions belong to a prompt; features of a picture are the same wherever it stands.

/// A picture, or the frames of a video that follow one another without text between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaSpan {
    /// The first of its tokens.
    pub first: usize,
    /// Steps in time.
    pub frames: usize,
    /// Rows of features in a frame.
    pub rows: usize,
    /// Features in a row.
    pub columns: usize,
}

impl MediaSpan {
    /// How many tokens it has.
    pub fn tokens(&self) -> usize {
        self.frames.saturating_mul(self.rows).saturating_mul(self.columns)
    }
}

/// Positions of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultimodalPositions {
    /// In time, height and width, one for each token.
    pub of_tokens: Vec<[i32; 3]>,
    /// A later token is at its place in the sequence plus this, on all three axes.
    pub delta: i32,
}

impl MultimodalPositions {
    /// Of a prompt of so many tokens. `spans`: in order, without overlap; `None` if they are not, or do not fit the prompt.
    pub fn new(tokens: usize, spans: &[MediaSpan]) -> Option<Self> {
        let mut of_tokens: Vec<[i32; 3]> = Vec::with_capacity(tokens);
        let mut next = 0;
        let text = |of_tokens: &mut Vec<[i32; 3]>, next: &mut i32, end: usize| {
            while of_tokens.len() < end {
                of_tokens.push([*next; 3]);
                *next += 1;
            }
        };
        for span in spans {
            if span.first < of_tokens.len() || span.first.checked_add(span.tokens())? > tokens {
                return None;
            }
            text(&mut of_tokens, &mut next, span.first);
            let place = |index: usize| {
                let (row, column) = (index / span.columns % span.rows, index % span.columns);
                [index / (span.rows * span.columns), row, column].map(|at| next + at as i32)
            };
            of_tokens.extend((0..span.tokens()).map(place));
            if span.tokens() > 0 {
                next += span.frames.max(span.rows).max(span.columns) as i32;
            }
        }
        text(&mut of_tokens, &mut next, tokens);
        Some(Self { of_tokens, delta: next - tokens as i32 })
    }

    /// The position of the token at a place in the sequence, in the prompt or behind it.
    pub fn at(&self, place: usize) -> [i32; 3] {
        self.of_tokens.get(place).copied().unwrap_or([place as i32 + self.delta; 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_continues_behind_the_largest_position() {
        let span = MediaSpan { first: 1, frames: 1, rows: 1, columns: 3 };
        let positions = MultimodalPositions::new(5, &[span]).unwrap();
        assert_eq!(positions.of_tokens, [[0; 3], [1, 1, 1], [1, 1, 2], [1, 1, 3], [4; 3]]);
        assert_eq!((positions.delta, positions.at(5)), (0, [5; 3]));
    }

    #[test]
    fn frames_are_steps_in_time() {
        let span = MediaSpan { first: 0, frames: 2, rows: 1, columns: 2 };
        let positions = MultimodalPositions::new(5, &[span]).unwrap();
        assert_eq!(positions.of_tokens, [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1], [2; 3]]);
        assert_eq!((positions.delta, positions.at(5)), (-2, [3; 3]));
    }

    #[test]
    fn spans_lie_within_the_prompt_in_order() {
        let span = |first| MediaSpan { first, frames: 1, rows: 2, columns: 2 };
        assert_eq!(MultimodalPositions::new(5, &[span(2)]), None);
        assert_eq!(MultimodalPositions::new(9, &[span(0), span(3)]), None);
        assert_eq!(MultimodalPositions::new(4, &[]).unwrap().delta, 0);
    }
}
