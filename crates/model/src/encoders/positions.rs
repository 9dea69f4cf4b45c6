//! Learned positions of a grid of patches.
//!
//! Invariant: weights of samples are computed on the host in float64, for rows and columns apart.

use mlx::{Array, Dtype};

use super::blueprint::{PatchOrder, PositionTable, Sampling};
use super::grid::Grid;
use super::patches::in_order;
use crate::params::Param;

/// Learned positions.
pub(super) struct Positions {
    pub(super) table: PositionTable,
    /// `[positions, hidden]`; one row if there are none.
    pub(super) weight: Param,
}

impl Positions {
    /// What is added to the rows of one view, `[rows of a view, hidden]`; `None` for nothing.
    pub(super) fn of(&self, grid: Grid, order: PatchOrder) -> mlx::Result<Option<Array>> {
        match self.table {
            PositionTable::Absent => Ok(None),
            PositionTable::PerRow { .. } => Ok(Some(Array::clone(&self.weight))),
            PositionTable::Square { side, sampling }
                if [grid.rows, grid.columns] == [side; 2] && sampling != Sampling::Nearest =>
            {
                in_order(&self.weight, grid, order).map(Some)
            }
            PositionTable::Axes { count } => in_order(&self.by_axes(grid, count)?, grid, order).map(Some),
            PositionTable::Square { side, sampling } => {
                in_order(&self.sampled(grid, side, sampling)?, grid, order).map(Some)
            }
        }
    }

    /// The sum of each patch's column's and row's positions, row by row.
    fn by_axes(&self, grid: Grid, count: usize) -> mlx::Result<Array> {
        let (hidden, down, across) = (self.weight.dim(-1)?, grid.rows as i32, grid.columns as i32);
        if grid.rows > count || grid.columns > count {
            return Err(mlx::Error::new(format!("{grid:?} is within {count} positions")));
        }
        let of_columns = self.weight.slice(&[0, 0], &[across, hidden])?.expand_dims(&[0])?;
        let of_rows =
            self.weight.slice(&[count as i32, 0], &[count as i32 + down, hidden])?.expand_dims(&[1])?;
        (of_columns + of_rows).reshape(&[down * across, hidden])
    }

    /// The square's positions at the places of the patches, row by row.
    fn sampled(&self, grid: Grid, side: usize, sampling: Sampling) -> mlx::Result<Array> {
        let dtype = self.weight.dtype()?;
        let hidden = self.weight.dim(-1)?;
        let (from, down, across) = (side as i32, grid.rows as i32, grid.columns as i32);
        let of_rows = Array::from_slice(&samples(sampling, side, grid.rows), &[down, from])?;
        let of_columns = Array::from_slice(&samples(sampling, side, grid.columns), &[across, from])?;
        let square = self.weight.astype(Dtype::F32)?.reshape(&[from, from * hidden])?;
        let rows = of_rows.matmul(&square)?.reshape(&[down, from, hidden])?;
        of_columns.matmul(&rows)?.reshape(&[down * across, hidden])?.astype(dtype)
    }
}

/// How much each of `from` positions counts at each of `to` places, `[to, from]`.
pub(super) fn samples(sampling: Sampling, from: usize, to: usize) -> Vec<f32> {
    let row = |place: usize| match sampling {
        Sampling::Nearest => {
            let at = bucket(place, from, to);
            (0..from).map(|position| f64::from(u8::from(position == at))).collect::<Vec<_>>()
        }
        Sampling::AlignedCorners => {
            let step = if to > 1 { (from - 1) as f64 / (to - 1) as f64 } else { 0.0 };
            triangle(place as f64 * step, 1.0, from)
        }
        Sampling::Antialiased => {
            let step = from as f64 / to.max(1) as f64;
            triangle((place as f64 + 0.5) * step - 0.5, step.max(1.0), from)
        }
        Sampling::Bilinear => triangle(centre(place, from, to).clamp(0.0, from as f64 - 1.0), 1.0, from),
        Sampling::Bicubic => cubic(centre(place, from, to), from),
    };
    (0..to).flat_map(row).map(|weight| weight as f32).collect()
}

/// The position that a place begins in. Multiples of fractions are rounded to float32, as the reference has them, so that some
/// places are in the position before. Source: transformers `models/idefics3/modeling_idefics3.py`.
fn bucket(place: usize, from: usize, to: usize) -> usize {
    let place = (place as f32 * (1.0 / to.max(1) as f32)).min(1.0 - 1e-6);
    let step = 1.0 / from.max(1) as f64;
    let border = |position: &usize| (step + (position - 1) as f64 * step) as f32;
    (1..from).take_while(|position| border(position) <= place).count()
}

/// Where the centre of a place is among positions.
fn centre(place: usize, from: usize, to: usize) -> f64 {
    (place as f64 + 0.5) * from as f64 / to.max(1) as f64 - 0.5
}

/// Weights of cubic convolution; positions beyond the ends are those at the ends. Source: Keys 1981.
fn cubic(centre: f64, positions: usize) -> Vec<f64> {
    const A: f64 = -0.75;
    let weight = |distance: f64| match distance.abs() {
        near if near <= 1.0 => ((A + 2.0) * near - (A + 3.0)) * near * near + 1.0,
        far if far < 2.0 => ((A * far - 5.0 * A) * far + 8.0 * A) * far - 4.0 * A,
        _ => 0.0,
    };
    let mut weights = vec![0.0; positions];
    let first = centre.floor() as i64 - 1;
    for at in first..first + 4 {
        let position = at.clamp(0, positions as i64 - 1) as usize;
        if let Some(sum) = weights.get_mut(position) {
            *sum += weight(centre - at as f64);
        }
    }
    weights
}

/// Weights that fall from the centre to nothing at `reach` positions from it; their sum is 1.
fn triangle(centre: f64, reach: f64, positions: usize) -> Vec<f64> {
    let weight = |position: usize| (1.0 - (position as f64 - centre).abs() / reach).max(0.0);
    let weights: Vec<f64> = (0..positions).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_of_the_same_size_is_itself() {
        use Sampling::*;
        for sampling in [Nearest, AlignedCorners, Antialiased, Bilinear, Bicubic] {
            assert_eq!(
                samples(sampling, 3, 3),
                [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
                "{sampling:?}"
            );
        }
    }

    #[test]
    fn corners_are_kept() {
        assert_eq!(samples(Sampling::AlignedCorners, 2, 3), [1.0, 0.0, 0.5, 0.5, 0.0, 1.0]);
        assert_eq!(samples(Sampling::AlignedCorners, 2, 1), [1.0, 0.0]);
    }

    #[test]
    fn ends_are_repeated_where_a_cubic_goes_beyond_them() {
        let [near, far] = [283.0 / 256.0, -27.0 / 256.0];
        assert_eq!(samples(Sampling::Bicubic, 2, 4)[..2], [near, far]);
        assert_eq!(samples(Sampling::Bilinear, 2, 4)[..4], [1.0, 0.0, 0.75, 0.25]);
    }

    #[test]
    fn fewer_places_cover_more_positions() {
        let [near, far] = [3.0 / 7.0, 1.0 / 7.0];
        assert_eq!(samples(Sampling::Antialiased, 4, 2), [near, near, far, 0.0, 0.0, far, near, near]);
    }

    #[test]
    fn some_patches_have_the_position_before() {
        let of = |side: usize| (0..side).map(|place| bucket(place, side, side)).collect::<Vec<_>>();
        assert_eq!(of(26), (0..26).collect::<Vec<_>>());
        assert_eq!(of(49)[4..8], [4, 4, 6, 6]);
    }

    #[test]
    fn a_patch_has_the_position_it_begins_in() {
        assert_eq!(samples(Sampling::Nearest, 3, 2), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }
}
