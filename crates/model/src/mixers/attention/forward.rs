//! The forward pass of an attention layer.

use mlx::Array;

use super::gate::GateBlock;
use super::normed::QkNormBlock;
use super::prepare::{Preparation, Rounding};
use super::{Attention, AttentionSpan, KeySource};
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
    rounding: Option<Rounding>,
    gate: Option<GateBlock>,
    /// `[heads]`
    sinks: Option<Array>,
}

impl AttentionBlock {
    pub(crate) fn load(spec: &Attention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let (q, out) = (linear("q_proj")?, linear("o_proj")?);
        let kv: &[&str] = match spec.keys {
            KeySource::Own => &["k_proj", "v_proj"],
            KeySource::OwnAsValues => &["k_proj"],
            KeySource::Layer(_) => &[],
        };
        let kv = kv.iter().map(|name| linear(name)).collect::<Result<Vec<_>, _>>()?;
        let (q, gate) = GateBlock::load(spec, q, store, path)?;
        let norm = spec.qk_norm.map(|norm| QkNormBlock::load(norm, spec.has_keys(), store, path));
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope)?),
            Position::None => None,
        };
        let sinks = spec.sink_logits.then(|| store.vector(&format!("{path}.sinks"))).transpose()?;
        let rounds = spec.rounds_keys && spec.has_keys();
        Ok(Self {
            spec: spec.clone(),
            ops: store.ops(),
            qkv: Fused::new([q].into_iter().chain(kv).collect())?,
            out,
            qk_norm: norm.transpose()?,
            rotation,
            rounding: rounds.then(|| Rounding::load(store, path)).transpose()?,
            gate,
            sinks,
        })
    }

    /// Queries, keys and values, those of them that the layer has.
    pub(in crate::mixers) fn project(&self, x: &Array) -> mlx::Result<Array> {
        let qkv = self.qkv.forward(x)?;
        let Some(clip) = self.spec.clip_qkv else { return Ok(qkv) };
        let [low, high] = [Array::scalar(-clip, qkv.dtype()?)?, Array::scalar(clip, qkv.dtype()?)?];
        qkv.clip(Some(&low), Some(&high))
    }

    /// What the layer makes of `x` with this projection of it.
    pub(in crate::mixers) fn attend(
        &self,
        x: &Array,
        mut qkv: Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        let spec = &self.spec;
        let (norm, rotation) = (self.qk_norm.as_ref(), self.rotation.as_ref());
        let (rotation, before) = if spec.rotates_in_kernels() { (rotation, None) } else { (None, rotation) };
        let mut head_norms = None;
        if spec.norms_in_kernels() {
            head_norms = norm.and_then(QkNormBlock::in_kernels);
        } else {
            let preparation = Preparation { spec, norm, rotation: before, rounding: self.rounding.as_ref() };
            qkv = preparation.apply(&qkv, layer.ctx)?;
        }
        let layer = match spec.keys {
            KeySource::Layer(source) => layer.of_layer(source)?,
            KeySource::Own | KeySource::OwnAsValues => layer,
        };
        let sinks = self.sinks.as_ref();
        let call = AttentionCall { spec, qkv: &qkv, head_norms, rotation, sinks, filter: None, layer };
        let attended = self.ops.attend(call)?;
        // Scores weigh values, so that values and their sum scale alike.
        let attended = if spec.value_scale == 1.0 { attended } else { attended * spec.value_scale };
        match &self.gate {
            Some(gate) => self.out.forward(&gate.forward(self.ops, x, &attended, spec.v_head_dim)?),
            None => self.out.forward(&attended),
        }
    }
}

impl MixerBlock for AttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        self.attend(x, self.project(x)?, layer)
    }

    fn arrays(&self) -> Vec<&Array> {
        let norms = self.qk_norm.iter().flat_map(QkNormBlock::arrays);
        let gate = self.gate.iter().flat_map(GateBlock::arrays);
        let rotation = self.rotation.iter().flat_map(Rotation::arrays);
        let linears = self.qkv.arrays().into_iter().chain(self.out.arrays());
        let rounding = self.rounding.iter().flat_map(Rounding::arrays);
        linears.chain(norms).chain(gate).chain(rotation).chain(rounding).chain(&self.sinks).collect()
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.span = span;
    }
}
