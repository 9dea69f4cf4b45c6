//! Softmax attention as a layer that is checked.

use mlx::{Array, Dtype};

use super::normal;
use super::probed::{Probed, rotation};
use crate::ops::{AttentionCall, AttentionNeeds, HeadNorm, LayerContext, Ops, Rotation};
use crate::{Attention, QkNorm};

/// Softmax attention with random norms and sinks.
pub(super) struct SoftmaxLayer<'a> {
    spec: &'a Attention,
    dtype: Dtype,
    norms: Option<[Array; 2]>,
    rotation: Option<Rotation>,
    sinks: Option<Array>,
}

impl<'a> SoftmaxLayer<'a> {
    pub(super) fn new(spec: &'a Attention, dtype: Dtype) -> mlx::Result<Self> {
        let weight = |seed| normal(&[spec.head_dim], dtype, seed);
        Ok(Self {
            spec,
            dtype,
            norms: match spec.qk_norm.and_then(QkNorm::in_kernels) {
                Some(_) => Some([weight(7)?, weight(8)?]),
                None => None,
            },
            rotation: rotation(&spec.position)?,
            sinks: match spec.sink_logits {
                true => Some(normal(&[spec.heads], dtype, 6)?),
                false => None,
            },
        })
    }
}

impl Probed for SoftmaxLayer<'_> {
    fn shape(&self) -> String {
        let Attention { heads, kv_heads, head_dim, span, .. } = self.spec;
        format!("{heads}/{kv_heads} heads of {head_dim}, {}", format!("{span:?}").to_lowercase())
    }

    fn projected(&self, rows: usize, seed: u64) -> mlx::Result<Vec<Array>> {
        let Attention { heads, kv_heads, head_dim, v_head_dim, .. } = *self.spec;
        let width = (heads + kv_heads) * head_dim + kv_heads * v_head_dim;
        Ok(vec![normal(&[rows, width], self.dtype, seed)?])
    }

    fn add_to<'a>(&'a self, needs: &mut AttentionNeeds<'a>) {
        needs.layers.push(self.spec);
    }

    fn attend(&self, ops: &dyn Ops, projected: &[Array], layer: LayerContext) -> mlx::Result<Array> {
        let [qkv] = projected else { return Err(mlx::Error::new("queries, keys and values")) };
        let head_norms = match (&self.norms, self.spec.qk_norm) {
            (Some([q, k]), Some(norm)) => {
                Some([q, k].map(|weight| HeadNorm { weight, eps: norm.norm.eps() }))
            }
            _ => None,
        };
        let (spec, rotation, sinks) = (self.spec, self.rotation.as_ref(), self.sinks.as_ref());
        let value_norm = spec.value_norm;
        ops.attend(AttentionCall { spec, qkv, head_norms, value_norm, rotation, sinks, filter: None, layer })
    }

    fn cached(&self) -> usize {
        2 * self.spec.kv_heads * self.spec.head_dim
    }
}
