//! Features of views as those of one picture: tiles of a canvas, and frames of a video.
//!
//! Source: transformers `models/llava_next/modeling_llava_next.py`, `models/llava_onevision/modeling_llava_onevision.py`.

use mlx::{Array, Dtype};

use super::blueprint::{EncoderBlueprint, Sampling, Separators};
use super::grid::{Canvas, Layout};
use super::manifest::{NEWLINE, SEPARATOR};
use super::positions::samples;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// Learned vectors between features, `[width]` each.
pub(super) struct SeparatorVectors {
    newline: Option<Param>,
    /// Between a canvas and the whole behind it.
    separator: Option<Param>,
}

impl SeparatorVectors {
    pub(super) fn load(blueprint: &EncoderBlueprint, store: &mut Store) -> Result<Self, LoadError> {
        let mut vector = |name: &str| store.vector(&format!("encoder.{name}")).map(Some);
        Ok(match blueprint.separators {
            Separators::None => Self { newline: None, separator: None },
            Separators::Newline => Self { newline: vector(NEWLINE)?, separator: None },
            Separators::CanvasFirst => Self { newline: vector(NEWLINE)?, separator: vector(SEPARATOR)? },
        })
    }

    /// Rows `[rows, columns, width]`, each with the vector that ends it, one after the other: `[n, width]`.
    fn ended(&self, rows: &Array) -> mlx::Result<Array> {
        let [count, _, _] = rows.dims()?;
        match self.ends(count, rows)? {
            Some(ends) => mlx::concatenate(&[rows, &ends.expand_dims(&[1])?], 1)?.flatten(0, 1),
            None => rows.flatten(0, 1),
        }
    }

    /// The vectors that end so many rows, in the type of others: `[count, width]`.
    fn ends(&self, count: i32, like: &Array) -> mlx::Result<Option<Array>> {
        let Some(newline) = &self.newline else { return Ok(None) };
        let end = line(newline, like, &[1, -1])?;
        let [_, width] = end.dims()?;
        end.broadcast_to(&[count, width]).map(Some)
    }
}

impl Layout {
    /// `rows`: features of all `views`, `[rows, width]`.
    pub(super) fn arranged(
        &self,
        rows: Array,
        views: usize,
        separators: &SeparatorVectors,
    ) -> mlx::Result<Array> {
        match self {
            Self::Views | Self::Pools { .. } | Self::Tiles { .. } => Ok(rows),
            Self::Canvas(canvas) => canvas.arranged(&squares(&rows, views)?, separators),
            Self::Frames(size) => {
                let frames = resized(&squares(&rows, views)?, *size)?.flatten(0, 2)?;
                match &separators.newline {
                    Some(newline) => mlx::concatenate(&[&frames, &line(newline, &frames, &[1, -1])?], 0),
                    None => Ok(frames),
                }
            }
        }
    }
}

impl Canvas {
    /// `views`: `[1 + tiles, side, side, width]`.
    fn arranged(&self, views: &Array, separators: &SeparatorVectors) -> mlx::Result<Array> {
        let [all, side, _, width] = views.dims()?;
        let [down, across] = self.tiles.map(|tiles| tiles as i32);
        let [rows, columns] = self.shown.map(|shown| shown as i32);
        let rest = [down * side - rows, across * side - columns];
        let fits = 1 + down * across == all && rest.iter().all(|rest| *rest >= 0 && rest % 2 == 0);
        // A picture so narrow that it covers no row or column of features has none of its own, in the reference, too.
        let covers = !self.shown.contains(&0);
        if !fits || (if covers { self.resized.contains(&0) } else { self.resized != self.shown }) {
            return Err(mlx::Error::new(format!(
                "{all} views of {side} by {side} features are not {self:?}"
            )));
        }
        let whole = views.slice(&[0; 4], &[1, side, side, width])?.squeeze(&[0])?;
        let picture = if covers {
            let tiles = views.slice(&[1, 0, 0, 0], &[all, side, side, width])?;
            let tiles = tiles.reshape(&[down, across, side, side, width])?.transpose(&[0, 2, 1, 3, 4])?;
            let canvas = tiles.reshape(&[1, down * side, across * side, width])?;
            let [top, left] = rest.map(|rest| rest / 2);
            let picture = canvas.slice(&[0, top, left, 0], &[1, top + rows, left + columns, width])?;
            Some(separators.ended(&resized(&picture, self.resized)?.squeeze(&[0])?)?)
        } else if rows > 0 {
            separators.ends(rows, &whole)?
        } else {
            None
        };
        let (before, behind) = match &separators.separator {
            Some(separator) => {
                let behind = [line(separator, &whole, &[1, -1])?, separators.ended(&whole)?];
                (picture.into_iter().collect(), behind.to_vec())
            }
            None => (vec![whole.flatten(0, 1)?], picture.into_iter().collect()),
        };
        let parts: Vec<&Array> = before.iter().chain(&behind).collect();
        mlx::concatenate(&parts, 0)
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
pub(super) fn resized(x: &Array, to: [usize; 2]) -> mlx::Result<Array> {
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
