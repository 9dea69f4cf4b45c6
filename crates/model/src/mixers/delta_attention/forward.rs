//! The forward pass of delta attention.

use mlx::Array;

use super::DeltaAttention;
use crate::blocks::{Fused, Linear, MixerBlock, Projection};
use crate::ops::{CausalConv, DeltaRows, GatedDeltaWeights, LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// One layer of delta attention.
pub(crate) struct DeltaAttentionBlock {
    spec: DeltaAttention,
    ops: Ops,
    qkv: Fused,
    decay: Projection,
    write: Linear,
    gate: Projection,
    weights: GatedDeltaWeights,
    out: Linear,
}

impl DeltaAttentionBlock {
    pub(crate) fn load(spec: &DeltaAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let parts = ["q", "k", "v"];
        let qkv = parts.map(|part| store.linear(&at(&format!("{part}_proj"))));
        let conv = parts.map(|part| store.conv(&at(&format!("{part}_conv1d"))));
        Ok(Self {
            spec: *spec,
            ops: store.ops(),
            qkv: Fused::new(qkv.into_iter().collect::<Result<_, _>>()?)?,
            decay: Projection::load(store, path, "f", spec.decay_rank)?,
            write: store.linear(&at("b_proj"))?,
            gate: Projection::load(store, path, "g", spec.gate_rank)?,
            weights: GatedDeltaWeights {
                conv: CausalConv::join(conv.into_iter().collect::<Result<_, _>>()?)?,
                a_log: store.float(&at("A_log"))?,
                dt_bias: store.float(&at("dt_bias"))?,
                norm: store.float(&at("o_norm.weight"))?,
            },
            out: store.linear(&at("o_proj"))?,
        })
    }
}

impl MixerBlock for DeltaAttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let (qkv, steps) = (self.qkv.forward(x)?, self.decay.forward(x)?);
        let (write, gate) = (self.write.forward(x)?, self.gate.forward(x)?);
        let rows = DeltaRows { qkv: &qkv, steps: &steps, write: &write, gate: &gate };
        self.out.forward(&self.ops.delta_attention(&self.spec, &self.weights, &rows, layer)?)
    }
}
