//! Rotation of queries and keys by the row and the column of a patch.

use mlx::{Array, Dtype};

use super::blueprint::{ClassToken, PatchOrder, PatchPairs, Rotary2d, RotaryAxes};
use super::grid::Grid;
use crate::RotaryPairing;

/// Cosines and sines of the patches of a view, each `[rows · columns, 1, head_dim / 2]` f32.
pub(super) struct Angles {
    cos: Array,
    sin: Array,
    pairs: PatchPairs,
}

impl Rotary2d {
    /// The angles of all rows, view after view; a class token does not turn.
    pub(super) fn angles(
        &self,
        grid: Grid,
        (order, class_token): (PatchOrder, ClassToken),
        head_dim: usize,
    ) -> mlx::Result<Angles> {
        let places = match order {
            PatchOrder::Rows => grid.places_in_squares(1),
            PatchOrder::Squares(side) => grid.places_in_squares(side),
        };
        let [by_row, by_column] = self.frequencies(head_dim);
        let of_place = |[row, column]: [usize; 2]| {
            let turn = |frequencies: &[f32], at: usize| -> Vec<f32> {
                frequencies.iter().map(|frequency| at as f32 * frequency).collect()
            };
            match self.axes {
                RotaryAxes::SameFrequencies | RotaryAxes::AlternateFrequencies => {
                    [turn(&by_row, row), turn(&by_column, column)].concat()
                }
                RotaryAxes::ColumnsFirst => [turn(&by_column, column), turn(&by_row, row)].concat(),
                RotaryAxes::ColumnsFirstFromOne => {
                    [turn(&by_column, column + 1), turn(&by_row, row + 1)].concat()
                }
                RotaryAxes::InTurn => {
                    let both = turn(&by_column, column).into_iter().zip(turn(&by_row, row));
                    both.flat_map(<[f32; 2]>::from).collect()
                }
            }
        };
        let mut angles: Vec<f32> = places.into_iter().flat_map(of_place).collect();
        let still = vec![0.0; head_dim / 2 * class_token.rows()];
        let at = if class_token == ClassToken::First { 0 } else { angles.len() };
        angles.splice(at..at, still);
        let rows = (grid.view() + class_token.rows()) as i32;
        let angles = Array::from_slice(&angles, &[rows, 1, head_dim as i32 / 2])?;
        let angles = angles.tile(&[grid.count as i32, 1, 1])?;
        Ok(Angles { cos: angles.cos()?, sin: angles.sin()?, pairs: self.pairs })
    }

    /// Radians for each row and for each column, of the pairs that turn by it.
    fn frequencies(&self, head_dim: usize) -> [Vec<f32>; 2] {
        let base = f64::from(self.base);
        let frequency = |pair: usize, dims: usize| base.powf(-2.0 * pair as f64 / dims as f64) as f32;
        let count = head_dim / 4;
        match self.axes {
            RotaryAxes::SameFrequencies
            | RotaryAxes::ColumnsFirst
            | RotaryAxes::ColumnsFirstFromOne
            | RotaryAxes::InTurn => {
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
    /// These angles with rows in another order.
    pub(super) fn take(&self, order: &Array) -> mlx::Result<Self> {
        Ok(Self { cos: self.cos.take(order, 0)?, sin: self.sin.take(order, 0)?, pairs: self.pairs })
    }

    /// `x`: `[patches, heads, head_dim]`.
    pub(super) fn rotate(&self, x: &Array) -> mlx::Result<Array> {
        let [rows, heads, width] = x.dims()?;
        // Parts that turn apart, then partners on one of the axes behind.
        let (shape, axis) = match self.pairs {
            PatchPairs::OfHead(RotaryPairing::Halves) => ([rows, heads, 1, 2, width / 2], 3),
            PatchPairs::OfHead(RotaryPairing::Interleaved) => ([rows, heads, 1, width / 2, 2], 4),
            PatchPairs::HalvesOfAxes => ([rows, heads, 2, 2, width / 4], 3),
        };
        let split = x.astype(Dtype::F32)?.reshape(&shape)?.split(&[1], axis)?;
        let [a, b] = split.as_slice() else { return Err(mlx::Error::new("two partners")) };
        let (a, b) = (a.squeeze(&[axis])?, b.squeeze(&[axis])?);
        let [_, _, parts, pairs] = a.dims()?;
        let of_parts = |angles: &Array| angles.reshape(&[rows, 1, parts, pairs]);
        let (cos, sin) = (of_parts(&self.cos)?, of_parts(&self.sin)?);
        let turned = [&a * &cos - &b * &sin, &b * &cos + &a * &sin];
        mlx::stack(&[&turned[0], &turned[1]], axis)?.reshape(&[rows, heads, width])?.astype(x.dtype()?)
    }
}
