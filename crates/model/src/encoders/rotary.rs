//! Rotation of queries and keys by the row and the column of a patch.

use mlx::{Array, Dtype};

use super::blueprint::{PatchOrder, Rotary2d, RotaryAxes};
use super::grid::Grid;
use crate::RotaryPairing;

/// Cosines and sines of the patches of a view, each `[rows · columns, 1, head_dim / 2]` f32.
pub(super) struct Angles {
    cos: Array,
    sin: Array,
    pairs: RotaryPairing,
}

impl Rotary2d {
    /// The angles of all patches, view after view.
    pub(super) fn angles(&self, grid: Grid, order: PatchOrder, head_dim: usize) -> mlx::Result<Angles> {
        let places = match order {
            PatchOrder::Rows => grid.places_in_squares(1),
            PatchOrder::Squares(side) => grid.places_in_squares(side),
        };
        let [by_row, by_column] = self.frequencies(head_dim);
        let of_place = |[row, column]: [usize; 2]| {
            let turn = |frequencies: &[f32], at: usize| -> Vec<f32> {
                frequencies.iter().map(|frequency| at as f32 * frequency).collect()
            };
            [turn(&by_row, row), turn(&by_column, column)].concat()
        };
        let angles: Vec<f32> = places.into_iter().flat_map(of_place).collect();
        let angles = Array::from_slice(&angles, &[grid.view() as i32, 1, head_dim as i32 / 2])?;
        let angles = angles.tile(&[grid.count as i32, 1, 1])?;
        Ok(Angles { cos: angles.cos()?, sin: angles.sin()?, pairs: self.pairs })
    }

    /// Radians for each row and for each column, of the pairs that turn by it.
    fn frequencies(&self, head_dim: usize) -> [Vec<f32>; 2] {
        let base = f64::from(self.base);
        let frequency = |pair: usize, dims: usize| base.powf(-2.0 * pair as f64 / dims as f64) as f32;
        let count = head_dim / 4;
        match self.axes {
            RotaryAxes::SameFrequencies => {
                let both: Vec<f32> = (0..count).map(|pair| frequency(pair, head_dim / 2)).collect();
                [both.clone(), both]
            }
            RotaryAxes::AlternateFrequencies => {
                [0, 1].map(|first| (0..count).map(|pair| frequency(2 * pair + first, head_dim)).collect())
            }
        }
    }
}

impl Angles {
    /// The same with rows in another order.
    pub(super) fn take(&self, order: &Array) -> mlx::Result<Self> {
        Ok(Self { cos: self.cos.take(order, 0)?, sin: self.sin.take(order, 0)?, pairs: self.pairs })
    }

    /// `x`: `[patches, heads, head_dim]`.
    pub(super) fn rotate(&self, x: &Array) -> mlx::Result<Array> {
        let [rows, heads, width] = x.dims()?;
        let (shape, axis) = match self.pairs {
            RotaryPairing::Halves => ([rows, heads, 2, width / 2], 2),
            RotaryPairing::Interleaved => ([rows, heads, width / 2, 2], 3),
        };
        let split = x.astype(Dtype::F32)?.reshape(&shape)?.split(&[1], axis)?;
        let [a, b] = split.as_slice() else { return Err(mlx::Error::new("two partners")) };
        let (a, b) = (a.squeeze(&[axis])?, b.squeeze(&[axis])?);
        let turned = [&a * &self.cos - &b * &self.sin, &b * &self.cos + &a * &self.sin];
        mlx::stack(&[&turned[0], &turned[1]], axis)?.reshape(&[rows, heads, width])?.astype(x.dtype()?)
    }
}
