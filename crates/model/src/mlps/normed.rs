//! A gated MLP with a norm before its last projection (BitNet): `down(norm(act(gate(x)) · up(x)))`.

use mlx::Array;

use super::GatedMlp;
use crate::Activation;
use crate::blocks::{Fused, Linear, MlpBlock, NormBlock};
use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;
use crate::ops::Ops;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// A gated MLP, and the norm, `ffn_sub_norm`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct NormedMlp {
    pub mlp: GatedMlp,
    pub norm: Norm,
}

/// The norm's name.
const NORM: &str = "ffn_sub_norm";

impl Rules for NormedMlp {
    fn check_rules(&self, broken: &mut Broken) {
        self.mlp.check_rules(broken);
    }
}

impl Tensors for NormedMlp {
    fn name_tensors(&self, at: &mut Scope) {
        self.mlp.name_tensors(at);
        at.norm_as(TensorRole::Column, NORM, self.norm, self.mlp.width);
    }
}

impl Footprint for NormedMlp {
    fn row_elements(&self, hidden: usize) -> usize {
        self.mlp.row_elements(hidden) + self.mlp.width
    }
}

/// The MLP with its weights.
pub(super) struct NormedBlock {
    ops: Ops,
    gate_up: Fused,
    norm: NormBlock,
    down: Linear,
    act: Activation,
}

impl NormedBlock {
    pub(super) fn load(spec: &NormedMlp, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let (gate, up, down) = (linear("gate_proj")?, linear("up_proj")?, linear("down_proj")?);
        let norm = store.norm(&format!("{path}.{NORM}"), spec.norm, spec.mlp.width)?;
        Ok(Self { ops: store.ops(), gate_up: Fused::new(vec![gate, up])?, norm, down, act: spec.mlp.act })
    }
}

impl MlpBlock for NormedBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let activated = self.ops.gated_act(&self.gate_up.forward(x)?, self.act)?;
        self.down.forward(&self.norm.forward(&activated)?)
    }
}
