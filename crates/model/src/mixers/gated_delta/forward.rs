//! The forward pass of a gated delta layer.

use mlx::Array;

use super::GatedDelta;
use crate::blocks::{Fused, Linear, MixerBlock};
use crate::ops::{GatedDeltaWeights, LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// One layer of the gated delta rule.
pub(crate) struct GatedDeltaBlock {
    spec: GatedDelta,
    ops: Ops,
    /// Queries, keys, values, gates, betas, steps.
    input: Fused,
    weights: GatedDeltaWeights,
    out: Linear,
}

impl GatedDeltaBlock {
    pub(crate) fn load(spec: &GatedDelta, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut part = |name: &str| store.linear(&format!("{path}.in_proj_{name}"));
        let input = vec![part("qkv")?, part("z")?, part("b")?, part("a")?];
        Ok(Self {
            spec: spec.clone(),
            ops: store.ops(),
            input: Fused::new(input)?,
            weights: GatedDeltaWeights {
                conv: store.conv(&format!("{path}.conv1d"))?,
                a_log: store.float(&format!("{path}.A_log"))?,
                dt_bias: store.float(&format!("{path}.dt_bias"))?,
                norm: store.vector(&format!("{path}.norm.weight"))?,
            },
            out: store.linear(&format!("{path}.out_proj"))?,
        })
    }
}

impl MixerBlock for GatedDeltaBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let projected = self.input.forward(x)?;
        let y = self.ops.gated_delta(&self.spec, &self.weights, &projected, layer)?;
        self.out.forward(&y)
    }
}
