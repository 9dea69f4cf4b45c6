//! The forward pass of a gated MLP.

use mlx::Array;

use super::GatedMlp;
use crate::Activation;
use crate::blocks::{Fused, Linear, MlpBlock};
use crate::ops::Ops;
use crate::weights::{LoadError, Store};

/// A gated MLP with its two input projections merged.
pub(crate) struct GatedBlock {
    ops: Ops,
    gate_up: Fused,
    down: Linear,
    act: Activation,
}

impl GatedBlock {
    pub(crate) fn load(spec: &GatedMlp, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let gate = store.linear(&format!("{path}.gate_proj"))?;
        let up = store.linear(&format!("{path}.up_proj"))?;
        let down = store.linear(&format!("{path}.down_proj"))?;
        Ok(Self { ops: store.ops(), gate_up: Fused::new(vec![gate, up])?, down, act: spec.act })
    }
}

impl MlpBlock for GatedBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        self.down.forward(&self.ops.gated_act(&self.gate_up.forward(x)?, self.act)?)
    }
}
