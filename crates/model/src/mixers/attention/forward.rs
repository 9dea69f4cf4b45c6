//! The forward pass of an attention layer.

use mlx::Array;

use super::gate::GateBlock;
use super::normed::QkNormBlock;
use super::prepare::prepared;
use super::{Attention, AttentionSpan};
use crate::blocks::{Fused, Linear, MixerBlock};
use crate::ops::{AttentionCall, LayerContext, Ops, Rotation};
use crate::weights::Store;
use crate::{LoadError, Position};

/// One attention layer.
pub(crate) struct AttentionBlock {
    spec: Attention,
    ops: &'static dyn Ops,
    qkv: Fused,
    out: Linear,
    qk_norm: Option<QkNormBlock>,
    rotation: Option<Rotation>,
    gate: Option<GateBlock>,
    /// `[heads]`
    sinks: Option<Array>,
}

impl AttentionBlock {
    pub(crate) fn load(spec: &Attention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let (q, k, v, out) = (linear("q_proj")?, linear("k_proj")?, linear("v_proj")?, linear("o_proj")?);
        let (q, gate) = GateBlock::load(spec, q, store, path)?;
        let qk_norm = spec.qk_norm.map(|norm| QkNormBlock::load(norm, store, path)).transpose()?;
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope)?),
            Position::None => None,
        };
        let sinks = spec.sink_logits.then(|| store.vector(&format!("{path}.sinks"))).transpose()?;
        let qkv = Fused::new(vec![q, k, v])?;
        Ok(Self { spec: spec.clone(), ops: store.ops(), qkv, out, qk_norm, rotation, gate, sinks })
    }

    fn project(&self, x: &Array) -> mlx::Result<Array> {
        let qkv = self.qkv.forward(x)?;
        let Some(clip) = self.spec.clip_qkv else { return Ok(qkv) };
        let [low, high] = [Array::scalar(-clip, qkv.dtype()?)?, Array::scalar(clip, qkv.dtype()?)?];
        qkv.clip(Some(&low), Some(&high))
    }
}

impl MixerBlock for AttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let spec = &self.spec;
        let mut qkv = self.project(x)?;
        let (norm, rotation) = (self.qk_norm.as_ref(), self.rotation.as_ref());
        let (rotation, before) = if spec.rotates_in_kernels() { (rotation, None) } else { (None, rotation) };
        let mut head_norms = None;
        if spec.norms_in_kernels() {
            head_norms = norm.and_then(QkNormBlock::in_kernels);
        } else {
            qkv = prepared(spec, (norm, before), &qkv, layer.ctx)?;
        }
        let sinks = self.sinks.as_ref();
        let attended =
            self.ops.attend(AttentionCall { spec, qkv: &qkv, head_norms, rotation, sinks, layer })?;
        // Scores weigh values, so that values and their sum scale alike.
        let attended = if spec.value_scale == 1.0 { attended } else { attended * spec.value_scale };
        match &self.gate {
            Some(gate) => self.out.forward(&gate.forward(self.ops, x, &attended, spec.v_head_dim)?),
            None => self.out.forward(&attended),
        }
    }

    fn arrays(&self) -> Vec<&Array> {
        let norms = self.qk_norm.iter().flat_map(QkNormBlock::arrays);
        let gate = self.gate.iter().flat_map(GateBlock::arrays);
        let rotation = self.rotation.iter().flat_map(Rotation::arrays);
        let linears = self.qkv.arrays().into_iter().chain(self.out.arrays());
        linears.chain(norms).chain(gate).chain(rotation).chain(&self.sinks).collect()
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.span = span;
    }
}
