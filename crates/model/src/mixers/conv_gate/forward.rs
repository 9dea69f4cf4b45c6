//! The forward pass of convolved keys and values.

use mlx::Array;

use super::ConvGate;
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::norm::Norm;
use crate::ops::{CausalConv, LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// One layer.
pub(crate) struct ConvGateBlock {
    spec: ConvGate,
    ops: Ops,
    /// Queries, keys and values.
    projections: [Linear; 3],
    /// Of queries and of keys.
    norms: [NormBlock; 2],
    conv: CausalConv,
    out: Linear,
}

impl ConvGateBlock {
    pub(crate) fn load(spec: &ConvGate, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let norm = Norm::Rms { eps: spec.norm_eps };
        Ok(Self {
            spec: *spec,
            ops: store.ops(),
            projections: [
                store.linear(&at("q_proj"))?,
                store.linear(&at("k_proj"))?,
                store.linear(&at("v_proj"))?,
            ],
            norms: [
                store.norm(&at("q_norm"), norm, spec.head_dim)?,
                store.norm(&at("k_norm"), norm, spec.head_dim)?,
            ],
            conv: CausalConv::join(vec![store.conv(&at("key_conv"))?, store.conv(&at("value_conv"))?])?,
            out: store.linear(&at("o_proj"))?,
        })
    }
}

impl MixerBlock for ConvGateBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let (heads, kv_heads, dim) =
            (self.spec.heads as i32, self.spec.kv_heads as i32, self.spec.head_dim as i32);
        let ([q, k, v], [q_norm, k_norm]) = (&self.projections, &self.norms);
        let rows = x.dim(0)?;
        let q = q_norm.forward(&q.forward(x)?.reshape(&[rows, heads, dim])?)?;
        let k = k_norm.forward(&k.forward(x)?.reshape(&[rows, kv_heads, dim])?)?;
        let keys = kv_heads * dim;
        let before = mlx::concatenate(&[&k.reshape(&[rows, keys])?, &v.forward(x)?], -1)?;
        let mixed = self.ops.convolve(&self.conv, &before, layer)?;
        let parts =
            mixed.reshape(&[rows, 2 * kv_heads, dim])?.repeat(heads / kv_heads, 1)?.split(&[heads], 1)?;
        let [k, v] = parts.as_slice() else { return Err(mlx::Error::new("keys and values")) };
        self.out.forward(&((q * k).sigmoid()? * v).reshape(&[rows, heads * dim])?)
    }
}
