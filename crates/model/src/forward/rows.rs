//! Rows of a packed batch: selecting them, ordering them, and index arrays.

use std::ops::Range;

use mlx::Array;
use omnibus_kv::BlockTable;

use crate::batch::Segment;
use crate::take_rows::take_rows;

/// Rows that are computed together.
pub(crate) enum Rows {
    /// Consecutive rows of one segment.
    Chunk { first: i32, len: i32 },
    /// One row each of several segments, `[n]` i32.
    Singles(Array),
}

impl Rows {
    /// These rows of `x`, `[T, heads, width]` → `[n, heads, rows, width]`.
    pub(crate) fn of_heads(&self, x: &Array) -> mlx::Result<Array> {
        match self {
            Self::Singles(rows) => take_rows(x, rows)?.expand_dims(&[2]),
            Self::Chunk { first, len } => {
                let [_, heads, width] = x.dims()?;
                let rows = x.slice(&[*first, 0, 0], &[first + len, heads, width])?;
                rows.transpose(&[1, 0, 2])?.expand_dims(&[0])
            }
        }
    }

    /// Rows that are computed together: those of one segment, or one row of each of several.
    pub(super) fn of(segments: impl IntoIterator<Item = Range<usize>>) -> mlx::Result<Self> {
        let segments: Vec<Range<usize>> = segments.into_iter().collect();
        match segments.as_slice() {
            [one] if one.len() != 1 => Ok(Self::Chunk { first: one.start as i32, len: one.len() as i32 }),
            _ => {
                let rows: Vec<i32> = segments.iter().map(|rows| rows.start as i32).collect();
                Ok(Self::Singles(indices(&rows)?))
            }
        }
    }
}

/// Segments of one row, which are computed as one batch, and longer ones, which are computed one by one.
pub(super) fn singles_and_chunks(segments: &[Segment]) -> (Vec<&Segment>, Vec<&Segment>) {
    segments.iter().partition(|one| one.len == 1)
}

/// For each row of the batch, its index when these rows are laid end to end; `None` if that is the batch's own order.
pub(super) fn order_of(
    segments: impl Iterator<Item = Range<usize>>,
    rows: usize,
) -> mlx::Result<Option<Array>> {
    let mut order = vec![0; rows];
    let mut next = 0;
    for segment in segments {
        for place in order.iter_mut().skip(segment.start).take(segment.len()) {
            *place = next;
            next += 1;
        }
    }
    let in_order = order.iter().enumerate().all(|(row, place)| row as i32 == *place);
    Ok(if in_order { None } else { Some(indices(&order)?) })
}

/// A segment's block table in a group.
pub(super) fn table_of(segment: &Segment, group: usize) -> mlx::Result<&BlockTable> {
    segment.tables.get(group).ok_or_else(|| mlx::Error::new("one block table for each group"))
}

/// `[n]` i32.
pub(super) fn indices(values: &[i32]) -> mlx::Result<Array> {
    Array::from_slice(values, &[values.len() as i32])
}
