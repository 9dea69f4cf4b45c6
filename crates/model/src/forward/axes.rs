//! Positions of a pass in time, height and width.

use std::cell::OnceCell;

use mlx::Array;

/// Positions of all rows in time, height and width, for models whose pairs turn by these.
pub(crate) struct AxisPositions {
    /// Positions in time, then in height, then in width, `[3 · T]`.
    pub(super) numbers: Vec<i32>,
    /// Whether each row is at its place in its sequence on all axes.
    are_places: Vec<bool>,
    /// `[3, T]` i32; made when first needed.
    array: OnceCell<Array>,
}

impl AxisPositions {
    /// `axes`: of all rows; `None` where each row is at its place in its sequence. `places`: these.
    pub(super) fn new(axes: Option<&[[i32; 3]]>, places: &[i32]) -> mlx::Result<Self> {
        let all: Vec<[i32; 3]> = match axes {
            Some(axes) => axes.to_vec(),
            None => places.iter().map(|place| [*place; 3]).collect(),
        };
        if all.len() != places.len() {
            return Err(mlx::Error::new(format!("{} positions for {} rows", all.len(), places.len())));
        }
        let of_axis = |axis: usize| all.iter().filter_map(move |of_row| of_row.get(axis)).copied();
        Ok(Self {
            numbers: (0..3).flat_map(of_axis).collect(),
            are_places: all.iter().zip(places).map(|(axes, place)| *axes == [*place; 3]).collect(),
            array: OnceCell::new(),
        })
    }

    /// `[3, T]` i32.
    pub(crate) fn array(&self) -> mlx::Result<&Array> {
        if let Some(made) = self.array.get() {
            return Ok(made);
        }
        let made = Array::from_slice(&self.numbers, &[3, self.are_places.len() as i32])?;
        Ok(self.array.get_or_init(|| made))
    }

    /// True for rows at their place in their sequence, `[T, 1, 1]`; `None` if all are.
    pub(crate) fn are_places(&self) -> mlx::Result<Option<Array>> {
        if self.are_places.iter().all(|is_place| *is_place) {
            return Ok(None);
        }
        Array::from_slice(&self.are_places, &[self.are_places.len() as i32, 1, 1]).map(Some)
    }
}
