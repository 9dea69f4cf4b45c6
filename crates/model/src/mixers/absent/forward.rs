//! No mixer has no forward pass: no norm placement calls it.

use mlx::Array;

use super::Absent;
use crate::blocks::MixerBlock;
use crate::ops::LayerContext;

impl MixerBlock for Absent {
    fn forward(&self, _x: &Array, _layer: LayerContext) -> mlx::Result<Array> {
        Err(mlx::Error::new("a layer without a mixer has a norm placement without one"))
    }
}
