//! Whether rows of a short chunk read their keys together.

use mlx::device::{Backend, backend};

use crate::batch::Segment;

/// How the rows of short chunks read their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortChunks {
    /// Each row by itself, as rows that decode: a pass without longer chunks is launched as a graph, which saves more than
    /// reading keys once for several rows.
    RowByRow,
    /// As those of longer chunks.
    Together,
}

/// Most rows of a short chunk, and most keys that they read in all.
const SHORT_ROWS: usize = 128;
const SHORT_KEYS: usize = 1 << 15;

impl ShortChunks {
    /// On this device.
    pub(super) fn of_device() -> Self {
        if backend() == Backend::Cuda { Self::RowByRow } else { Self::Together }
    }

    /// Whether the rows of a segment read their keys together.
    pub(super) fn is_chunk(self, segment: &Segment) -> bool {
        let keys = segment.len * (segment.context + segment.len);
        let is_short = segment.len <= SHORT_ROWS && keys <= SHORT_KEYS;
        segment.len > 1 && !(is_short && self == Self::RowByRow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_short_by_their_rows_and_by_the_keys_of_all() {
        let is_chunk = |len, context| {
            let segment =
                Segment { first: 0, len, context, prompt: 0, samples: 0, adapter: None, tables: vec![] };
            [ShortChunks::RowByRow, ShortChunks::Together].map(|short| short.is_chunk(&segment))
        };
        assert_eq!(is_chunk(1, 1 << 20), [false, false]);
        assert_eq!(is_chunk(SHORT_ROWS, 0), [false, true]);
        assert_eq!(is_chunk(SHORT_ROWS + 1, 0), [true, true]);
        assert_eq!(is_chunk(8, SHORT_KEYS / 8 - 8), [false, true]);
        assert_eq!(is_chunk(8, SHORT_KEYS / 8), [true, true]);
    }
}
