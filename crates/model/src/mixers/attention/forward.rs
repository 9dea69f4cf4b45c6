//! The forward pass of an attention layer.

use mlx::{Array, fast};

use super::gate::GateBlock;
use super::normed::QkNormBlock;
use super::prepare::{CallSpec, Preparation, Rounding};
use super::tensors::OUT_NORM;
use super::{Attention, AttentionSpan, DistanceBlock, KeySource, OutNorm};
use crate::blocks::{Fused, Linear, MixerBlock, NormBlock};
use crate::forward::ForwardContext;
use crate::ops::{AttentionCall, GpuFusions, KeyFilter, LayerContext, Ops, Rotation, ScoreTerm, clipped};
use crate::params::Param;
use crate::rope::Position;
use crate::weights::{LoadError, Store};

/// One attention layer.
pub(crate) struct AttentionBlock {
    spec: CallSpec,
    ops: Ops,
    qkv: Fused,
    out: Linear,
    qk_norm: Option<QkNormBlock>,
    rotation: Option<Rotation>,
    rounding: Option<Rounding>,
    gate: Option<GateBlock>,
    out_norm: Option<NormBlock>,
    /// `[heads]`
    query_gain: Option<Param>,
    /// `[heads]`
    sinks: Option<Param>,
    distances: Option<DistanceBlock>,
}

impl AttentionBlock {
    pub(crate) fn load(spec: &Attention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        // What is projected once for all passes, no adapter may change.
        let is_fixed = |name: &str| {
            spec.distances.is_some_and(|of| of.projects()) && matches!(name, "q_proj" | "k_proj")
        };
        let mut linear = |name: &str| -> Result<Linear, LoadError> {
            let linear = store.linear(&format!("{path}.{name}"))?;
            Ok(if is_fixed(name) { linear.without_adapters()? } else { linear })
        };
        let (q, out) = (linear("q_proj")?, linear("o_proj")?);
        let kv: &[&str] = match spec.keys {
            KeySource::Own => &["k_proj", "v_proj"],
            KeySource::OwnAsValues => &["k_proj"],
            KeySource::Layer(_) => &[],
        };
        let kv = kv.iter().map(|name| linear(name)).collect::<Result<Vec<_>, _>>()?;
        let distances = match kv.first() {
            Some(keys) => DistanceBlock::load(spec, [&q, keys], store, path)?,
            None => None,
        };
        let (q, gate) = GateBlock::load(spec, q, store, path)?;
        let norm = spec.qk_norm.map(|norm| QkNormBlock::load(norm, spec.has_keys(), store, path));
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope, store.params())?),
            Position::None => None,
        };
        let sinks = spec.sink_logits.then(|| store.vector(&format!("{path}.sinks"))).transpose()?;
        let gain = spec.query_gain.then(|| store.vector(&format!("{path}.head_gain"))).transpose()?;
        let width = spec.heads * spec.v_head_dim;
        let out_norm = match spec.out_norm {
            Some(OutNorm::AllHeads(norm)) => Some(store.norm(&format!("{path}.{OUT_NORM}"), norm, width)?),
            Some(OutNorm::EachHead(_)) | None => None,
        };
        let rounds = spec.rounds_keys && spec.has_keys();
        Ok(Self {
            spec: CallSpec::new(spec),
            ops: store.ops(),
            qkv: Fused::new([q].into_iter().chain(kv).collect())?,
            out,
            qk_norm: norm.transpose()?,
            rotation,
            rounding: rounds.then(|| Rounding::load(store, path)).transpose()?,
            gate,
            out_norm,
            query_gain: gain,
            sinks,
            distances,
        })
    }

    /// Queries, keys and values, those of them that the layer has.
    pub(in crate::mixers) fn project(&self, x: &Array) -> mlx::Result<Array> {
        self.qkv.forward(x)
    }

    /// What the heads see, `[T, heads · v_head_dim]`, of this projection. `spec`: the layer's, perhaps with another span
    /// or another layer's keys.
    pub(in crate::mixers) fn attended(
        &self,
        spec: &CallSpec,
        mut qkv: Array,
        filter: Option<&dyn KeyFilter>,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        let rotation = self.rotation.as_ref();
        let (spec, gpu_fusions) = match spec.has_gpu_fusions() && layer.has_gpu_kernels(filter) {
            true => spec.on_gpu(),
            false => (spec.spec(), GpuFusions::NONE),
        };
        if let Some(clip) = spec.clip_qkv {
            qkv = clipped(&qkv, clip)?;
        }
        let (in_kernels, before) = match spec.rotates_in_kernels() {
            true => (rotation, None),
            false => (None, rotation),
        };
        let (mut head_norms, mut value_norm, mut projected) = (None, None, spec.projected());
        if spec.norms_in_kernels() {
            head_norms = self.qk_norm.as_ref().and_then(QkNormBlock::in_kernels);
            value_norm = spec.value_norm.filter(|_| spec.has_keys());
        } else {
            qkv = self.preparation(spec, before).apply(&qkv, layer.ctx)?;
            projected = spec.prepared();
        }
        let layer = match spec.keys {
            KeySource::Layer(source) => layer.of_layer(source)?,
            KeySource::Own | KeySource::OwnAsValues => layer,
        };
        let attended = self.ops.attend(AttentionCall {
            spec,
            qkv: &qkv,
            projected,
            head_norms,
            value_norm,
            rotation: in_kernels,
            gpu_fusions,
            sinks: self.sinks.as_deref(),
            distances: self.distances.as_ref().map(|distances| distances as &dyn ScoreTerm),
            filter,
            layer,
        })?;
        // Scores weigh values, so that values and their sum scale alike.
        match spec.value_scale {
            1.0 => Ok(attended),
            scale => self.ops.scaled(&attended, scale),
        }
    }

    /// Queries as scores have them, normed and rotated. `queries`: as projected, `[T, heads · head_dim]`; `spec`: the layer's
    /// with another layer's keys.
    pub(in crate::mixers) fn prepared_queries(
        &self,
        spec: &Attention,
        queries: &Array,
        ctx: &ForwardContext,
    ) -> mlx::Result<Array> {
        self.preparation(spec, self.rotation.as_ref()).apply(queries, ctx)
    }

    fn preparation<'a>(&'a self, spec: &'a Attention, rotation: Option<&'a Rotation>) -> Preparation<'a> {
        let norm = self.qk_norm.as_ref();
        let (rounding, gain) = (self.rounding.as_ref(), self.query_gain.as_deref());
        Preparation { spec, ops: &self.ops, norm, rotation, rounding, gain }
    }

    /// The layer's output, of `x` and what the heads saw.
    pub(in crate::mixers) fn output(&self, x: &Array, attended: Array) -> mlx::Result<Array> {
        let attended = match self.spec.spec().out_norm {
            Some(OutNorm::EachHead(eps)) => by_head(&attended, self.spec.spec().v_head_dim, eps)?,
            Some(OutNorm::AllHeads(_)) | None => attended,
        };
        let attended = match &self.gate {
            Some(gate) => gate.forward(&self.ops, x, &attended)?,
            None => attended,
        };
        match &self.out_norm {
            Some(norm) => self.out.forward(&norm.forward(&attended)?),
            None => self.out.forward(&attended),
        }
    }
}

/// RMS norm of each head.
fn by_head(attended: &Array, head_dim: usize, eps: f32) -> mlx::Result<Array> {
    let [rows, width] = attended.dims()?;
    fast::rms_norm(&attended.reshape(&[rows, -1, head_dim as i32])?, None, eps)?.reshape(&[rows, width])
}

impl MixerBlock for AttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let attended = self.attended(&self.spec, self.project(x)?, None, layer)?;
        self.output(x, attended)
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.set_span(span);
    }
}
