//! The forward pass of a gated short convolution.

use mlx::Array;

use super::ShortConv;
use crate::LoadError;
use crate::blocks::{Linear, MixerBlock};
use crate::ops::{CausalConv, LayerContext, Ops};
use crate::weights::Store;

/// One layer of a gated short convolution.
pub(crate) struct ShortConvBlock {
    ops: &'static dyn Ops,
    /// `b`, `c` and `x`.
    input: Linear,
    conv: CausalConv,
    out: Linear,
}

impl ShortConvBlock {
    pub(crate) fn load(_spec: &ShortConv, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            ops: store.ops(),
            input: store.linear(&format!("{path}.in_proj"))?,
            conv: store.conv(&format!("{path}.conv"))?,
            out: store.linear(&format!("{path}.out_proj"))?,
        })
    }
}

impl MixerBlock for ShortConvBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let projected = self.input.forward(x)?;
        let width = projected.dim(-1)? / 3;
        let parts = projected.split(&[width, 2 * width], -1)?;
        let [b, c, x] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        let mixed = self.ops.convolve(&self.conv, &(b * x), layer)?;
        self.out.forward(&(c * mixed))
    }

    fn arrays(&self) -> Vec<&Array> {
        let linears = self.input.arrays().into_iter().chain(self.out.arrays());
        linears.chain(self.conv.arrays()).collect()
    }
}
