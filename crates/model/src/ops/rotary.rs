//! Rotary embedding of packed rows, in MLX's own operations.
//!
//! Source: arXiv 2104.09864 §3.4.2; which elements pair up and how frequencies stretch is in `rope`.

use mlx::{Array, Dtype, fast};

use crate::RotaryPairing;
use crate::forward::{ForwardContext, SequenceLengths};
use crate::params::{Param, Params};
use crate::rope::{Rope, RotarySections};

/// A rotation with its frequencies.
pub(crate) struct Rotation {
    pub(crate) rope: Rope,
    /// Radians per position, `[dims / 2]` f32; `None` when they depend on the sequence.
    pub(crate) radians: Option<Param>,
    pub(crate) magnitude: f32,
    /// What MLX's kernel takes: positions per radian, `[dims / 2]` f32.
    inverse: Option<Param>,
    /// Which of a row's positions in time, height and width each pair turns by, `[dims / 2]` i32; `None` for one position.
    pub(crate) axes: Option<Param>,
}

impl Rotation {
    pub(crate) fn new(rope: &Rope, params: &Params) -> mlx::Result<Self> {
        if rope.depends_on_length() {
            return Ok(Self { rope: rope.clone(), radians: None, magnitude: 1.0, inverse: None, axes: None });
        }
        let frequencies = rope.frequencies(0);
        let pairs = [frequencies.radians.len() as i32];
        // A product of MLX's, so that a GPU has them in its own memory.
        let radians = Array::from_slice(&frequencies.radians, &pairs)? * 1.0;
        let inverse: Vec<f32> = frequencies.radians.iter().map(|radians| 1.0 / radians).collect();
        let inverse = Some(params.hold(Array::from_slice(&inverse, &pairs)?));
        let of_pairs = |sections: RotarySections| -> mlx::Result<Param> {
            let axes = sections.axes(rope.dims / 2).into_iter().map(|axis| axis as i32);
            Ok(params.hold(Array::from_slice(&axes.collect::<Vec<_>>(), &pairs)? * 1))
        };
        let axes = rope.sections.map(of_pairs).transpose()?;
        let magnitude = frequencies.magnitude;
        let radians = Some(params.hold(radians));
        Ok(Self { rope: rope.clone(), radians, magnitude, inverse, axes })
    }

    /// This rotation the other way round, where it does not depend on the sequence.
    pub(crate) fn reversed(&self) -> mlx::Result<Self> {
        let negative = |part: &Option<Param>| part.as_ref().map(|part| part.map(Array::negative)).transpose();
        let (radians, inverse) = (negative(&self.radians)?, negative(&self.inverse)?);
        let (rope, axes) = (self.rope.clone(), self.axes.clone());
        Ok(Self { rope, radians, magnitude: 1.0 / self.magnitude, inverse, axes })
    }

    /// `x`: `[T, heads, head_dim]`, row `i` at `positions[i]` of a sequence that is rotated as one of
    /// `lengths[i]` tokens.
    pub(crate) fn apply(
        &self,
        x: &Array,
        positions: &Array,
        lengths: &SequenceLengths,
    ) -> mlx::Result<Array> {
        let Some(inverse) = &self.inverse else { return self.apply_by_length(x, lengths) };
        let kernel = fast::Rope {
            dims: self.rope.dims as i32,
            traditional: self.rope.pairs == RotaryPairing::Interleaved,
            base: None,
            scale: 1.0,
            freqs: Some(Array::clone(inverse)),
        };
        let rotated = kernel.apply_rows(&x.expand_dims(&[2])?, positions)?.squeeze(&[2])?;
        if self.magnitude == 1.0 {
            return Ok(rotated);
        }
        let head_dim = x.shape().last().copied().unwrap_or(0) as usize;
        let scale: Vec<f32> =
            (0..head_dim).map(|i| if i < self.rope.dims { self.magnitude } else { 1.0 }).collect();
        Ok(rotated * Array::from_slice(&scale, &[head_dim as i32])?.astype(x.dtype()?)?)
    }

    /// Rotates the rows of a pass by their positions in time, height and width where pairs turn by these.
    pub(crate) fn apply_in(&self, x: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let plain = self.apply(x, ctx.positions()?, &ctx.lengths)?;
        let (Some(of_pairs), Some(radians), Some(axes)) = (&self.axes, &self.radians, &ctx.axes) else {
            return Ok(plain);
        };
        let Some(are_places) = axes.are_places()? else { return Ok(plain) };
        let angles = axes.array()?.astype(Dtype::F32)?.take(of_pairs, 0)?.t()? * radians;
        let turned = self.turned(x, &angles.expand_dims(&[1])?, self.magnitude)?;
        // Rows without pictures turn as MLX's operation turns them alone.
        mlx::where_(&are_places, &plain, &turned)
    }

    fn apply_by_length(&self, x: &Array, lengths: &SequenceLengths) -> mlx::Result<Array> {
        let pairs = self.rope.dims / 2;
        let angles = lengths.0.iter().flat_map(|(position, end)| {
            let radians = self.rope.frequencies(*end).radians;
            radians.into_iter().map(|radians| *position as f32 * radians)
        });
        let angles: Vec<f32> = angles.collect();
        let angles = Array::from_slice(&angles, &[lengths.0.len() as i32, 1, pairs as i32])?;
        self.turned(x, &angles, 1.0)
    }

    /// `x`: `[T, heads, head_dim]`, `angles`: `[T, 1, dims / 2]`.
    fn turned(&self, x: &Array, angles: &Array, magnitude: f32) -> mlx::Result<Array> {
        let (cos, sin) = (angles.cos()? * magnitude, angles.sin()? * magnitude);
        let [rows, heads, head_dim] = x.dims()?;
        let (dims, pairs) = (self.rope.dims as i32, self.rope.dims as i32 / 2);
        let dtype = x.dtype()?;
        let rotated = x.slice(&[0, 0, 0], &[rows, heads, dims])?.astype(Dtype::F32)?;
        // Bring partners side by side on the third axis, turn them, and put them back.
        let (split, axis) = match self.rope.pairs {
            RotaryPairing::Halves => (rotated.reshape(&[rows, heads, 2, pairs])?, 2),
            RotaryPairing::Interleaved => (rotated.reshape(&[rows, heads, pairs, 2])?, 3),
        };
        let partners = split.split(&[1], axis)?;
        let [a, b] = partners.as_slice() else { return Err(mlx::Error::new("two partners")) };
        let (a, b) = (a.squeeze(&[axis])?, b.squeeze(&[axis])?);
        let turned = mlx::stack(&[&(&a * &cos - &b * &sin), &(&a * &sin + &b * &cos)], axis)?;
        let turned = turned.reshape(&[rows, heads, dims])?.astype(dtype)?;
        if dims == head_dim {
            return Ok(turned);
        }
        let rest = x.slice(&[0, 0, dims], &[rows, heads, head_dim])?;
        mlx::concatenate(&[&turned, &rest], -1)
    }
}
