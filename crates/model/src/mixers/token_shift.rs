//! The row before each row of a sequence: a state of one row.

use mlx::{Array, Dtype};

use super::Recurrence;
use crate::ops::LayerContext;

/// Remembers a sequence's last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenShift {
    /// Width of a row.
    pub width: usize,
}

impl Recurrence for TokenShift {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![1, self.width], vec![1]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

/// The row before each row of `x`, `[T, width]`; zeros before the first.
pub(super) fn row_before(x: &Array, layer: LayerContext) -> mlx::Result<Array> {
    let wide = x.astype(Dtype::F32)?;
    let before = layer.advance(|run, [last, other]| {
        let rows = run.rows(&wide)?;
        let [count, len, width] = rows.dims()?;
        let joined = mlx::concatenate(&[last, &rows], 1)?;
        let last = joined.slice(&[0, len, 0], &[count, len + 1, width])?;
        Ok((joined.slice(&[0, 0, 0], &[count, len, width])?, [last, other.clone()]))
    })?;
    before.astype(x.dtype()?)
}
