//! How queries and keys are normalised where no kernel does it.

use mlx::{Array, fast};

use super::{NormAt, NormOver, QkNorm};
use crate::ops::HeadNorm;
use crate::weights::Store;
use crate::{LoadError, Norm};

/// The norm with its weights, of queries and of keys.
pub(super) struct QkNormBlock {
    spec: QkNorm,
    /// Absent where the norm has none.
    weights: Option<[Array; 2]>,
    biases: Option<[Array; 2]>,
}

impl QkNormBlock {
    pub(super) fn load(spec: QkNorm, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut pair = |part: &str| -> Result<[Array; 2], LoadError> {
            let mut vector = |name: &str| store.vector(&format!("{path}.{name}.{part}"));
            Ok([vector("q_norm")?, vector("k_norm")?])
        };
        let weights = match spec.norm {
            Norm::Rms { .. } | Norm::Layer { .. } => Some(pair("weight")?),
            Norm::RmsUnweighted { .. } | Norm::LayerUnweighted { .. } => None,
        };
        let biases = match (spec.norm, spec.over) {
            (Norm::Layer { bias: true, .. }, NormOver::Head | NormOver::AllHeads) => Some(pair("bias")?),
            _ => None,
        };
        Ok(Self { spec, weights, biases })
    }

    /// As kernels take it.
    pub(super) fn in_kernels(&self) -> Option<[HeadNorm<'_>; 2]> {
        let (eps, [q, k]) = (self.spec.in_kernels()?, self.weights.as_ref()?);
        Some([q, k].map(|weight| HeadNorm { weight, eps }))
    }

    /// Queries and keys, `[T, heads, head_dim]` each, normed if this is when.
    pub(super) fn apply(&self, at: NormAt, [q, k]: [Array; 2]) -> mlx::Result<[Array; 2]> {
        if self.spec.at != at {
            return Ok([q, k]);
        }
        let [q_bias, k_bias] = pair_of(&self.biases);
        let [q_norm, k_norm] = pair_of(&self.weights);
        Ok([self.norm(&q, q_norm, q_bias)?, self.norm(&k, k_norm, k_bias)?])
    }

    fn norm(&self, x: &Array, weight: Option<&Array>, bias: Option<&Array>) -> mlx::Result<Array> {
        let normed = |x: &Array, weight: Option<&Array>| match self.spec.norm {
            Norm::Rms { eps } | Norm::RmsUnweighted { eps } => fast::rms_norm(x, weight, eps),
            Norm::Layer { eps, .. } | Norm::LayerUnweighted { eps } => fast::layer_norm(x, weight, bias, eps),
        };
        match self.spec.over {
            NormOver::Head => normed(x, weight),
            NormOver::EachHead => {
                let unweighted = normed(x, None)?;
                Ok(weight.map_or(unweighted.clone(), |weight| unweighted * weight))
            }
            NormOver::AllHeads => {
                let [rows, heads, dim] = x.dims()?;
                normed(&x.reshape(&[rows, heads * dim])?, weight)?.reshape(&[rows, heads, dim])
            }
        }
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.weights.iter().chain(&self.biases).flatten()
    }
}

fn pair_of(pair: &Option<[Array; 2]>) -> [Option<&Array>; 2] {
    match pair {
        Some([q, k]) => [Some(q), Some(k)],
        None => [None, None],
    }
}
