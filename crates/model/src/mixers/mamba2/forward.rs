//! The forward pass of a Mamba-2 layer.

use mlx::Array;

use super::Mamba2;
use crate::blocks::{Linear, MixerBlock};
use crate::ops::{GroupNormWeights, LayerContext, Mamba2Weights, Ops};
use crate::weights::{LoadError, Store};

/// One Mamba-2 layer.
pub(crate) struct Mamba2Block {
    spec: Mamba2,
    ops: Ops,
    /// The gate, the convolution's channels, then a step for each head.
    input: Linear,
    weights: Mamba2Weights,
    /// With its epsilon.
    norm: Option<(GroupNormWeights, f32)>,
    out: Linear,
}

impl Mamba2Block {
    pub(crate) fn load(spec: &Mamba2, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            spec: spec.clone(),
            ops: store.ops(),
            input: store.linear(&format!("{path}.in_proj"))?,
            weights: Mamba2Weights {
                conv: store.conv(&format!("{path}.conv1d"))?,
                a_log: store.float(&format!("{path}.A_log"))?,
                dt_bias: store.float(&format!("{path}.dt_bias"))?,
                skip: store.float(&format!("{path}.D"))?,
            },
            norm: match spec.norm {
                Some(norm) => {
                    let weight = store.vector(&format!("{path}.norm.weight"))?;
                    let width = (spec.inner() / spec.norm_groups) as i32;
                    let ones = weight.beside(Array::ones(&[width], weight.dtype()?)?);
                    Some((GroupNormWeights { groups: spec.norm_groups as i32, weight, ones }, norm.eps()))
                }
                None => None,
            },
            out: store.linear(&format!("{path}.out_proj"))?,
        })
    }
}

impl MixerBlock for Mamba2Block {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let projected = self.input.forward(x)?;
        let y = self.ops.mamba2(&self.spec, &self.weights, &projected, layer)?;
        match &self.norm {
            Some((weights, eps)) => self.out.forward(&self.ops.grouped_rms_norm(&y, weights, *eps)?),
            None => self.out.forward(&y),
        }
    }
}
