//! Alternating updates: a stream of several copies, of which each layer computes one and predicts the others.
//!
//! Source: arXiv 2301.13310.

use mlx::{Array, Dtype, fast};

use super::{Linear, ResidualStream};
use crate::blueprint::AlternatingUpdates;
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// How copies are made of what the first layer reads, and one again of what the last one leaves.
pub(crate) struct CopiesBlock {
    spec: AlternatingUpdates,
    make: Vec<Linear>,
    unmake: Vec<Linear>,
}

/// Prediction and correction of one layer.
pub(crate) struct AlternatingBlock {
    ops: Ops,
    spec: AlternatingUpdates,
    /// `[hidden]`
    norm: Param,
    router: Linear,
    /// `[copies · copies, copies]` and `[copies, copies]`, f32, within the limit.
    prediction: Param,
    correction: Param,
    /// `[hidden]`
    output_scale: Param,
}

impl CopiesBlock {
    pub(crate) fn load(spec: AlternatingUpdates, store: &mut Store, root: &str) -> Result<Self, LoadError> {
        let mut linears = |name: &str| {
            let linear = |copy: usize| store.linear(&format!("{root}.{name}.{copy}"));
            (0..spec.copies.saturating_sub(1)).map(linear).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { spec, make: linears("altup_projections")?, unmake: linears("altup_unembed_projections")? })
    }

    /// The copies of `x`, `[T, hidden]`; all have its magnitude.
    pub(crate) fn copies(&self, x: &Array) -> mlx::Result<Vec<Array>> {
        let others = self.make.iter().map(|linear| with_magnitude_of(x, &linear.forward(x)?));
        [Ok(x.clone())].into_iter().chain(others).collect()
    }

    /// The mean of the copies, brought back.
    pub(crate) fn mean(&self, copies: &[Array]) -> mlx::Result<Array> {
        let Some((first, others)) = copies.split_first() else { return Err(mlx::Error::new("copies")) };
        let mut sum = first.clone();
        for (linear, copy) in self.unmake.iter().zip(others) {
            sum = sum + with_magnitude_of(first, &linear.forward(copy)?)?;
        }
        Ok(sum / self.spec.copies as f32)
    }
}

fn with_magnitude_of(like: &Array, x: &Array) -> mlx::Result<Array> {
    let magnitude = |x: &Array| x.square()?.mean(&[-1])?.sqrt()?.expand_dims(&[-1]);
    Ok(x * (magnitude(like)? / magnitude(x)?))
}

impl AlternatingBlock {
    pub(crate) fn load(spec: AlternatingUpdates, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let [low, high] = [-spec.limit, spec.limit].map(|limit| Array::scalar(limit, Dtype::F32));
        let (low, high) = (low?, high?);
        let mut limited = |name: &str| -> Result<Param, LoadError> {
            let weight = store.float(&format!("{path}.altup.{name}.weight"))?;
            Ok(weight.map(|weight| weight.clip(Some(&low), Some(&high)))?)
        };
        let (prediction, correction) = (limited("prediction_coefs")?, limited("correction_coefs")?);
        Ok(Self {
            ops: store.ops(),
            spec,
            prediction,
            correction,
            norm: store.vector(&format!("{path}.altup.router_norm.weight"))?,
            router: store.linear(&format!("{path}.altup.modality_router"))?,
            output_scale: store.vector(&format!("{path}.altup.correct_output_scale"))?,
        })
    }

    /// How much `x` is of each modality, `[T, copies]` f32.
    fn modalities(&self, x: &Array) -> mlx::Result<Array> {
        let normed = fast::rms_norm(x, Some(&self.norm), self.spec.norm_eps)? / x.dim(-1)? as f32;
        self.router.forward(&normed)?.astype(Dtype::F32)?.tanh()
    }

    /// What the copies will be.
    pub(crate) fn predict(&self, copies: &[Array]) -> mlx::Result<Vec<Array>> {
        let active = copies.get(self.spec.active).ok_or_else(|| mlx::Error::new("the active copy"))?;
        let count = self.spec.copies as i32;
        let shares = self.modalities(active)?.matmul(&self.prediction.t()?)?;
        let shares = shares.reshape(&[-1, count, count])?;
        let stacked = mlx::stack(&copies.iter().collect::<Vec<_>>(), 1)?.astype(Dtype::F32)?;
        let predicted = shares.matmul(&stacked)? + &stacked;
        let parts = predicted.astype(active.dtype()?)?.split(&(1..count).collect::<Vec<_>>(), 1)?;
        parts.into_iter().map(|part| part.squeeze(&[1])).collect()
    }

    /// The predictions, by what the active copy became.
    pub(crate) fn correct(&self, predicted: &[Array], active: &Array) -> mlx::Result<Vec<Array>> {
        let was = predicted.get(self.spec.active).ok_or_else(|| mlx::Error::new("the active copy"))?;
        let shares = self.modalities(active)?.matmul(&self.correction.t()?)? + 1.0;
        let shares = shares.astype(active.dtype()?)?;
        let surprise = active - was;
        let rows = shares.dim(0)?;
        let corrected = predicted.iter().zip(0..).map(|(predicted, copy)| {
            Ok(predicted + &surprise * shares.slice(&[0, copy], &[rows, copy + 1])?)
        });
        corrected.collect()
    }

    /// The active copy, as the layer's own embeddings meet it.
    pub(crate) fn scaled(&self, copies: &[Array]) -> mlx::Result<Array> {
        let active = copies.get(self.spec.active).ok_or_else(|| mlx::Error::new("the active copy"))?;
        Ok(if self.spec.scales_output { active * &self.output_scale } else { active.clone() })
    }

    /// Which copy a layer computes.
    pub(crate) fn active(&self, copies: &[Array]) -> mlx::Result<ResidualStream> {
        let active = copies.get(self.spec.active).ok_or_else(|| mlx::Error::new("the active copy"))?;
        Ok(ResidualStream::new(&self.ops, active.clone()))
    }
}
