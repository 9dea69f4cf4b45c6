//! The forward pass of a gated short convolution.

use mlx::{Array, Dtype};

use super::{ConvReach, ShortConv};
use crate::blocks::{Linear, MixerBlock};
use crate::ops::{CausalConv, LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// One layer of a gated short convolution.
pub(crate) struct ShortConvBlock {
    ops: Ops,
    reach: ConvReach,
    /// `b`, `c` and `x`.
    input: Linear,
    conv: CausalConv,
    out: Linear,
}

impl ShortConvBlock {
    pub(crate) fn load(spec: &ShortConv, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            ops: store.ops(),
            reach: spec.reach,
            input: store.linear(&format!("{path}.in_proj"))?,
            conv: store.conv(&format!("{path}.conv"))?,
            out: store.linear(&format!("{path}.out_proj"))?,
        })
    }
}

impl ShortConvBlock {
    /// A convolution that reads as many rows behind each as before it: zeros take the place of a state.
    fn both_sides(&self, projected: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let width = projected.dim(-1)? / 3;
        let parts = projected.split(&[width, 2 * width], -1)?;
        let [b, c, x] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        let (dtype, gated) = (projected.dtype()?, (b * x).astype(Dtype::F32)?);
        let side = (self.conv.weight.dim(0)? - 1) / 2;
        let mixed = layer.advance(|run, [last, other]| {
            let rows = run.rows(&gated)?.pad(&[(0, 0), (0, side), (0, 0)], 0.0)?;
            let before = Array::zeros(&[rows.dim(0)?, 2 * side, width], Dtype::F32)?;
            let (mixed, _) = self.conv.forward(&rows, &before)?;
            let [count, len, _] = mixed.dims()?;
            let mixed = mixed.slice(&[0, side, 0], &[count, len, width])?;
            Ok((mixed, [last.clone(), other.clone()]))
        })?;
        Ok(c * mixed.astype(dtype)?)
    }
}

impl MixerBlock for ShortConvBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let projected = match &layer.ctx.attended {
            // Rows that others do not read give zeros, as padding does.
            Some(attended) => self.input.forward(&(x * attended.astype(x.dtype()?)?))?,
            None => self.input.forward(x)?,
        };
        let mixed = match self.reach {
            ConvReach::Before => self.ops.short_conv(&self.conv, &projected, layer)?,
            ConvReach::BothSides => self.both_sides(&projected, layer)?,
        };
        self.out.forward(&mixed)
    }
}
