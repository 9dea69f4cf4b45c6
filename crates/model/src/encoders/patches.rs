//! From pixels to patches, and from a convolution's weights to a matrix.

use mlx::Array;

use super::blueprint::{PatchEmbedding, PatchLayout, PatchOrder, PixelRange};
use super::grid::{Grid, View};
use crate::weights::LoadError;

impl PatchEmbedding {
    /// Patches `[count · rows · columns, elements]` of a view.
    pub(super) fn cut(&self, view: &View, order: PatchOrder) -> mlx::Result<Array> {
        let (grid, size) = (view.grid, self.size as i32);
        let wanted = || mlx::Error::new(format!("pixels of {grid:?} are not {:?}", view.pixels.shape()));
        if grid.patches() == 0 {
            return Err(wanted());
        }
        let patches = match *view.pixels.shape() {
            [patches, elements]
                if patches as usize == grid.patches() && elements as usize == self.elements() =>
            {
                Ok(view.pixels.clone())
            }
            [count, channels, height, width] if order == PatchOrder::Rows && self.frames == 1 => {
                let (rows, columns) = (grid.rows as i32, grid.columns as i32);
                let fits = count as usize == grid.count
                    && channels as usize == self.channels
                    && height >= rows * size
                    && width >= columns * size;
                if !fits {
                    return Err(wanted());
                }
                // Pixels that do not fill a patch are left out, as a convolution does.
                let whole = view.pixels.slice(&[0; 4], &[count, channels, rows * size, columns * size])?;
                let parts = whole.reshape(&[count, channels, rows, size, columns, size])?;
                let order = match self.layout {
                    PatchLayout::ColoursFirst => [0, 2, 4, 1, 3, 5],
                    PatchLayout::ColoursLast => [0, 2, 4, 3, 5, 1],
                };
                parts.transpose(&order)?.reshape(&[-1, self.elements() as i32])
            }
            _ => Err(wanted()),
        }?;
        Ok(match self.range {
            PixelRange::Normalized => patches,
            PixelRange::Unit => patches * 2.0 - 1.0,
        })
    }

    /// The matrix `[hidden, elements]` of a convolution's weights: `[hidden, channels, (frames,) size, size]` as
    /// published, channels last in MLX. A matrix stays as it is.
    pub(super) fn matrix(&self, name: &str, weight: &Array) -> Result<Array, LoadError> {
        let (channels, frames, size) = (self.channels as i32, self.frames as i32, self.size as i32);
        let by_channel = match *weight.shape() {
            [_, _] => return Ok(weight.clone()),
            [_, c, y, x] if [c, y, x] == [channels, size, size] && frames == 1 => weight.clone(),
            [_, y, x, c] if [c, y, x] == [channels, size, size] && frames == 1 => {
                weight.transpose(&[0, 3, 1, 2])?
            }
            [_, c, t, y, x] if [c, t, y, x] == [channels, frames, size, size] => weight.clone(),
            [_, t, y, x, c] if [c, t, y, x] == [channels, frames, size, size] => {
                weight.transpose(&[0, 4, 1, 2, 3])?
            }
            _ => {
                return Err(LoadError::Shape {
                    name: name.to_owned(),
                    shape: weight.shape().to_vec(),
                    want: format!("a convolution over patches of {self:?}"),
                });
            }
        };
        Ok(by_channel.reshape(&[-1, self.elements() as i32])?)
    }
}

/// Rows of a view in the order of its patches, from rows that come row by row: `[rows · columns, width]`.
pub(super) fn in_order(rows: &Array, grid: Grid, order: PatchOrder) -> mlx::Result<Array> {
    match order {
        PatchOrder::Rows => Ok(rows.clone()),
        PatchOrder::Squares(side) => {
            let width = rows.dim(-1)?;
            let (side, merged) = (side as i32, grid.merged(side));
            let (down, across) = (merged.rows as i32, merged.columns as i32);
            let parts = rows.reshape(&[down, side, across, side, width])?;
            parts.transpose(&[0, 2, 1, 3, 4])?.reshape(&[-1, width])
        }
    }
}
