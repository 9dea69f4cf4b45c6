//! Softmax attention as a layer that is checked.

use mlx::cpu::Projected;
use mlx::{Array, Dtype};

use super::normal;
use super::probed::{Probed, rotation};
use crate::mixers::{Attention, KeySource, QkNorm};
use crate::ops::{AttentionCall, AttentionNeeds, HeadNorm, LayerContext, Ops, Rotation};

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
        let Attention { heads, kv_heads, head_dim, span, keys, .. } = self.spec;
        let keys = match keys {
            KeySource::Own => "",
            KeySource::OwnAsValues => ", keys as values",
            KeySource::Layer(_) => ", shared keys",
        };
        format!("{heads}/{kv_heads} heads of {head_dim}, {}{keys}", format!("{span:?}").to_lowercase())
    }

    fn projected(&self, rows: usize, seed: u64) -> mlx::Result<Vec<Array>> {
        let Attention { heads, kv_heads, head_dim, v_head_dim, keys, .. } = *self.spec;
        let of_keys = match keys {
            KeySource::Own | KeySource::Layer(_) => head_dim + v_head_dim,
            KeySource::OwnAsValues => head_dim,
        };
        let of_layer = normal(&[rows, heads * head_dim + kv_heads * of_keys], self.dtype, seed)?;
        let of_reader = normal(&[rows, heads * head_dim], self.dtype, seed + 1)?;
        Ok(vec![of_layer, of_reader])
    }

    fn scores(&self) -> f64 {
        f64::from(self.spec.scale) * (self.spec.head_dim as f64).sqrt()
    }

    fn add_to<'a>(&'a self, needs: &mut AttentionNeeds<'a>) {
        needs.layers.push(self.spec);
    }

    fn attend(&self, ops: &Ops, projected: &[Array], mut layer: LayerContext) -> mlx::Result<Array> {
        let [qkv, queries] = projected else { return Err(mlx::Error::new("queries, keys and values")) };
        let head_norms = match (&self.norms, self.spec.qk_norm) {
            (Some([q, k]), Some(norm)) => {
                Some([q, k].map(|weight| HeadNorm { weight, eps: norm.norm.eps() }))
            }
            _ => None,
        };
        let attend = |qkv: &Array, projected: Projected, layer: LayerContext| {
            ops.attend(AttentionCall {
                spec: self.spec,
                qkv,
                projected,
                head_norms,
                value_norm: self.spec.value_norm,
                rotation: self.rotation.as_ref(),
                gpu_fusions: self.spec.gpu_fusions(),
                sinks: self.sinks.as_ref(),
                distances: None,
                filter: None,
                layer,
            })
        };
        match self.spec.keys {
            KeySource::Own | KeySource::OwnAsValues => attend(qkv, self.spec.projected(), layer),
            KeySource::Layer(_) => {
                let written = attend(qkv, Projected::QueriesKeysValues, layer.part(0))?;
                // As in a network, queries are computed after what the layer that wrote gave. Its errors do not count here: large
                // scores multiply them.
                attend(&(queries + written * 0.0), Projected::Queries, layer)
            }
        }
    }

    fn cached(&self) -> usize {
        2 * self.spec.kv_heads * self.spec.head_dim
    }
}
