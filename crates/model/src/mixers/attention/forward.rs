//! The forward pass of an attention layer.

use mlx::Array;

use super::{Attention, AttentionSpan, QkNorm};
use crate::blocks::{Fused, Linear, MixerBlock};
use crate::ops::{AttentionCall, HeadNorm, LayerContext, Ops, Rotation};
use crate::weights::Store;
use crate::{LoadError, Position};

/// One attention layer.
pub(crate) struct AttentionBlock {
    spec: Attention,
    ops: &'static dyn Ops,
    qkv: Fused,
    out: Linear,
    /// Weights of queries and of keys.
    qk_norm: Option<[Array; 2]>,
    rotation: Option<Rotation>,
    gate: Option<Linear>,
}

impl AttentionBlock {
    pub(crate) fn load(spec: &Attention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let (q, k, v, out) = (linear("q_proj")?, linear("k_proj")?, linear("v_proj")?, linear("o_proj")?);
        let (q, gate) = if spec.out_gate { query_and_gate(q, spec)? } else { (q, None) };
        let qk_norm = match spec.qk_norm {
            Some(QkNorm::PerHead { .. } | QkNorm::FullWidth { .. }) => {
                let mut weight = |name: &str| store.vector(&format!("{path}.{name}.weight"));
                Some([weight("q_norm")?, weight("k_norm")?])
            }
            None => None,
        };
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope)?),
            Position::None => None,
        };
        let qkv = Fused::new(vec![q, k, v])?;
        Ok(Self { spec: spec.clone(), ops: store.ops(), qkv, out, qk_norm, rotation, gate })
    }

    /// Norms over all heads together; the rest of attention sees them as projected.
    fn norm_full_width(&self, qkv: &Array, eps: f32) -> mlx::Result<Array> {
        let parts = split_qkv(&self.spec, qkv)?;
        let (Some([q_norm, k_norm]), [q, k, v]) = (&self.qk_norm, parts.as_slice()) else {
            return Err(mlx::Error::new("queries, keys, values and two norms"));
        };
        let (q, k) = (self.ops.rms_norm(q, q_norm, eps)?, self.ops.rms_norm(k, k_norm, eps)?);
        mlx::concatenate(&[&q, &k, v], -1)
    }
}

impl MixerBlock for AttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let qkv = self.qkv.forward(x)?;
        let (qkv, head_norms) = match (self.spec.qk_norm, &self.qk_norm) {
            (Some(QkNorm::PerHead { eps }), Some([q, k])) => {
                (qkv, Some([q, k].map(|weight| HeadNorm { weight, eps })))
            }
            (Some(QkNorm::FullWidth { eps }), _) => (self.norm_full_width(&qkv, eps)?, None),
            (Some(QkNorm::PerHead { .. }), None) | (None, _) => (qkv, None),
        };
        let rotation = self.rotation.as_ref();
        let attended =
            self.ops.attend(AttentionCall { spec: &self.spec, qkv: &qkv, head_norms, rotation, layer })?;
        match &self.gate {
            Some(gate) => self.out.forward(&self.ops.sigmoid_gate(&gate.forward(x)?, &attended)?),
            None => self.out.forward(&attended),
        }
    }

    fn arrays(&self) -> Vec<&Array> {
        let norms = self.qk_norm.iter().flatten();
        let gate = self.gate.iter().flat_map(Linear::arrays);
        let rotation = self.rotation.iter().flat_map(Rotation::arrays);
        let projections = self.qkv.arrays().into_iter().chain(self.out.arrays());
        projections.chain(norms).chain(gate).chain(rotation).collect()
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.span = span;
    }
}

/// A query projection that yields a query and a gate for each head in turn, apart.
fn query_and_gate(both: Linear, spec: &Attention) -> mlx::Result<(Linear, Option<Linear>)> {
    let dim = spec.head_dim;
    let half = |which: usize| -> mlx::Result<Array> {
        let rows = (0..spec.heads * dim).map(|row| (row / dim * 2 + which) * dim + row % dim);
        let rows: Vec<i32> = rows.map(|row| row as i32).collect();
        Array::from_slice(&rows, &[rows.len() as i32])
    };
    Ok((both.clone().take_rows(&half(0)?)?, Some(both.take_rows(&half(1)?)?)))
}

/// Queries, keys and values of a projection, apart.
fn split_qkv(spec: &Attention, qkv: &Array) -> mlx::Result<Vec<Array>> {
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    qkv.split(&[q as i32, (q + kv) as i32], -1)
}
