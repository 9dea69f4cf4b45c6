//! What a layer needs so that its attention can be checked.

use mlx::Array;

use crate::ops::{AttentionNeeds, LayerContext, Ops, Rotation};
use crate::params::Params;
use crate::rope::Position;

/// A layer that is checked: its spec and weights.
pub(super) trait Probed {
    /// Its heads, in words.
    fn shape(&self) -> String;

    /// What its kernels read, projected.
    fn projected(&self, rows: usize, seed: u64) -> mlx::Result<Vec<Array>>;

    /// Adds it to the layers that decide how keys are found.
    fn add_to<'a>(&'a self, needs: &mut AttentionNeeds<'a>);

    /// `[T, _]`, of what [`Self::projected`] gave.
    fn attend(&self, ops: &Ops, projected: &[Array], layer: LayerContext) -> mlx::Result<Array>;

    /// Standard deviation of its scores, as far as it is known.
    fn scores(&self) -> f64 {
        1.0
    }

    /// Numbers that are cached for a token.
    fn cached(&self) -> usize;
}

pub(super) fn rotation(position: &Position) -> mlx::Result<Option<Rotation>> {
    match position {
        Position::Rope(rope) => Rotation::new(rope, &Params::default()).map(Some),
        Position::None => Ok(None),
    }
}
