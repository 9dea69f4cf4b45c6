//! The forward pass of a gated short convolution.

use mlx::Array;

use super::ShortConv;
use crate::blocks::{Linear, MixerBlock};
use crate::ops::{CausalConv, LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// One layer of a gated short convolution.
pub(crate) struct ShortConvBlock {
    ops: Ops,
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
        self.out.forward(&self.ops.short_conv(&self.conv, &projected, layer)?)
    }
}
