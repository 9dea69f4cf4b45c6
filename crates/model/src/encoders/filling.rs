//! Rows that fill features up to a fixed number.

use mlx::Array;

use super::blueprint::Filling;
use super::manifest::FILLING;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The row that fills up.
pub(super) struct FillingRow {
    /// Rows with those that fill up.
    rows: i32,
    /// `[1, width]`
    row: Param,
}

impl FillingRow {
    /// Computes the row. `width`: that of the rows it stands behind.
    pub(super) fn load(
        filling: Filling,
        width: usize,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let [embedding, norm] = FILLING.map(|name| format!("{path}.{name}"));
        let token = Array::from_slice(&[filling.token as i32], &[1])?;
        let embedded = store.table(&embedding)?.take(&token, 0)?;
        let row = store.norm(&norm, filling.norm, width)?.forward(&embedded)?;
        let row = store.params().hold(row);
        row.evaluate()?;
        Ok(Self { rows: filling.rows as i32, row })
    }

    /// `[count, width]` → `[rows, width]`. Fails if there are more rows than that.
    pub(super) fn behind(&self, x: &Array) -> mlx::Result<Array> {
        let [count, width] = x.dims()?;
        if count > self.rows {
            let message = format!("a sound of {count} features; the model takes {}", self.rows);
            return Err(mlx::Error::new(message));
        }
        let filling = self.row.astype(x.dtype()?)?.broadcast_to(&[self.rows - count, width])?;
        mlx::concatenate(&[x, &filling], 0)
    }
}
