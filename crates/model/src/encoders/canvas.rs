//! Features of views as those of one picture: tiles of a canvas, and frames of a video.
//!
//! Source: transformers `models/llava_next/modeling_llava_next.py`, `models/llava_onevision/modeling_llava_onevision.py`.

use mlx::{Array, Dtype};

use super::blueprint::Sampling;
use super::grid::{Canvas, Layout};
use super::positions::samples;

impl Layout {
    /// `rows`: features of all `views`, `[rows, width]`. `newline`: what stands behind each row of a canvas and behind a
    /// video, `[width]`.
    pub(super) fn arranged(&self, rows: Array, views: usize, newline: Option<&Array>) -> mlx::Result<Array> {
        let arranged = match self {
            Self::Views | Self::Pools { .. } | Self::Tiles { .. } => return Ok(rows),
            Self::Canvas(canvas) => canvas.arranged(&squares(&rows, views)?, newline)?,
            Self::Frames(size) => {
                let frames = resized(&squares(&rows, views)?, *size)?;
                let frames = frames.flatten(0, 2)?;
                match newline {
                    Some(newline) => mlx::concatenate(&[&frames, &line(newline, &frames, &[1, -1])?], 0)?,
                    None => frames,
                }
            }
        };
        arranged.flatten(0, -2)
    }
}

impl Canvas {
    /// `views`: `[1 + tiles, side, side, width]`.
    fn arranged(&self, views: &Array, newline: Option<&Array>) -> mlx::Result<Array> {
        let [all, side, _, width] = views.dims()?;
        let [down, across] = self.tiles.map(|tiles| tiles as i32);
        let [rows, columns] = self.shown.map(|shown| shown as i32);
        let rest = [down * side - rows, across * side - columns];
        let fits = 1 + down * across == all && rest.iter().all(|rest| *rest >= 0 && rest % 2 == 0);
        if !fits || [self.shown, self.resized].concat().contains(&0) {
            return Err(mlx::Error::new(format!(
                "{all} views of {side} by {side} features are not {self:?}"
            )));
        }
        let whole = views.slice(&[0; 4], &[1, side, side, width])?;
        let tiles = views.slice(&[1, 0, 0, 0], &[all, side, side, width])?;
        let tiles = tiles.reshape(&[down, across, side, side, width])?.transpose(&[0, 2, 1, 3, 4])?;
        let canvas = tiles.reshape(&[1, down * side, across * side, width])?;
        let [top, left] = rest.map(|rest| rest / 2);
        let picture = canvas.slice(&[0, top, left, 0], &[1, top + rows, left + columns, width])?;
        let picture = resized(&picture, self.resized)?.squeeze(&[0])?;
        let picture = match newline {
            Some(newline) => {
                let column = line(newline, &picture, &[1, 1, -1])?;
                let column = column.broadcast_to(&[self.resized[0] as i32, 1, width])?;
                mlx::concatenate(&[&picture, &column], 1)?
            }
            None => picture,
        };
        mlx::concatenate(&[&whole.reshape(&[-1, width])?, &picture.reshape(&[-1, width])?], 0)
    }
}

/// Features of views that are squares, `[views, side, side, width]`.
fn squares(rows: &Array, views: usize) -> mlx::Result<Array> {
    let [all, width] = rows.dims()?;
    let of_view = all as usize / views.max(1);
    let side = of_view.isqrt();
    if views * side * side != all as usize {
        return Err(mlx::Error::new(format!("{all} features are not {views} squares")));
    }
    rows.reshape(&[views as i32, side as i32, side as i32, width])
}

/// A learned vector in the shape and type of rows beside which it stands.
fn line(vector: &Array, rows: &Array, shape: &[i32]) -> mlx::Result<Array> {
    vector.astype(rows.dtype()?)?.reshape(shape)
}

/// `[views, rows, columns, width]` to another number of rows and columns, bilinear between centres.
fn resized(x: &Array, to: [usize; 2]) -> mlx::Result<Array> {
    let [views, rows, columns, width] = x.dims()?;
    let [down, across] = to.map(|side| side as i32);
    if [rows, columns] == [down, across] {
        return Ok(x.clone());
    }
    let weights = |from: i32, to: i32| {
        Array::from_slice(&samples(Sampling::Bilinear, from as usize, to as usize), &[to, from])
    };
    let flat = x.astype(Dtype::F32)?.reshape(&[views, rows, columns * width])?;
    let tall = weights(rows, down)?.matmul(&flat)?.reshape(&[views * down, columns, width])?;
    let wide = weights(columns, across)?.matmul(&tall)?.astype(x.dtype()?)?;
    wide.reshape(&[views, down, across, width])
}
