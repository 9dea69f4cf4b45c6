//! How queries and keys are normalised where no kernel does it.

use mlx::{Array, fast};

use super::{NormAt, NormOver, QkNorm};
use crate::norm::Norm;
use crate::ops::HeadNorm;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The norm with its weights, of queries and, where a layer has them, of keys.
pub(super) struct QkNormBlock {
    spec: QkNorm,
    queries: HeadWeights,
    keys: HeadWeights,
}

/// Absent where the norm has none, or the layer no keys.
struct HeadWeights {
    weight: Option<Param>,
    bias: Option<Param>,
}

impl HeadWeights {
    const NONE: Self = Self { weight: None, bias: None };

    fn load(spec: QkNorm, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut part = |name: &str, is_there: bool| {
            is_there.then(|| store.vector(&format!("{path}.{name}"))).transpose()
        };
        let has_bias = matches!(spec.norm, Norm::Layer { bias: true, .. }) && spec.over != NormOver::EachHead;
        let has_weight = matches!(spec.norm, Norm::Rms { .. } | Norm::Layer { .. });
        Ok(Self { weight: part("weight", has_weight)?, bias: part("bias", has_bias)? })
    }
}

impl QkNormBlock {
    pub(super) fn load(
        spec: QkNorm,
        has_keys: bool,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let queries = HeadWeights::load(spec, store, &format!("{path}.q_norm"))?;
        let keys = match has_keys {
            true => HeadWeights::load(spec, store, &format!("{path}.k_norm"))?,
            false => HeadWeights::NONE,
        };
        Ok(Self { spec, queries, keys })
    }

    /// As kernels take it.
    pub(super) fn in_kernels(&self) -> Option<[HeadNorm<'_>; 2]> {
        let eps = self.spec.in_kernels()?;
        let q = self.queries.weight.as_deref()?;
        // A layer without keys reads the second of two weights nowhere.
        let k = self.keys.weight.as_deref().unwrap_or(q);
        Some([q, k].map(|weight| HeadNorm { weight, eps }))
    }

    /// The weights of queries and keys where each are normed together, `[heads · head_dim]`, and the epsilon.
    pub(super) fn of_all_heads(&self) -> Option<([&Array; 2], f32)> {
        match self.spec {
            QkNorm { norm: Norm::Rms { eps }, over: NormOver::AllHeads, .. } => {
                Some(([self.queries.weight.as_deref()?, self.keys.weight.as_deref()?], eps))
            }
            _ => None,
        }
    }

    /// Queries, `[T, heads, head_dim]`, normed if this is when.
    pub(super) fn queries(&self, at: NormAt, q: Array) -> mlx::Result<Array> {
        if self.spec.at == at { self.norm(&q, &self.queries) } else { Ok(q) }
    }

    /// Keys, `[T, kv_heads, head_dim]`, likewise.
    pub(super) fn keys(&self, at: NormAt, k: Array) -> mlx::Result<Array> {
        if self.spec.at == at { self.norm(&k, &self.keys) } else { Ok(k) }
    }

    fn norm(&self, x: &Array, weights: &HeadWeights) -> mlx::Result<Array> {
        let HeadWeights { weight, bias } = weights;
        let normed = |x: &Array, weight: Option<&Array>| match self.spec.norm {
            Norm::Rms { eps } | Norm::RmsUnweighted { eps } => fast::rms_norm(x, weight, eps),
            Norm::Layer { eps, .. } | Norm::LayerUnweighted { eps } => {
                fast::layer_norm(x, weight, bias.as_deref(), eps)
            }
            Norm::ScaledRms { .. } | Norm::Gain | Norm::Absent => {
                Err(mlx::Error::new("a norm of queries and keys"))
            }
        };
        match self.spec.over {
            NormOver::Head => normed(x, weight.as_deref()),
            NormOver::EachHead => {
                let unweighted = normed(x, None)?;
                Ok(weight.as_deref().map_or(unweighted.clone(), |weight| unweighted * weight))
            }
            NormOver::AllHeads => {
                let [rows, heads, dim] = x.dims()?;
                normed(&x.reshape(&[rows, heads * dim])?, weight.as_deref())?.reshape(&[rows, heads, dim])
            }
        }
    }
}
