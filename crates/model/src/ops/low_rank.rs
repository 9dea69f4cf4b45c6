//! The low-rank products of adapters, and how grouped products compute them.

use mlx::{Array, Dtype};

use super::{ChosenExperts, Weight};

/// How a backend has low-rank matrices stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LowRankLayout {
    /// As other weights, `[out, in]`.
    OutputsFirst,
    /// `[in, out]`
    InputsFirst,
}

/// The matrices of `n` adapters, or of each expert of several, for one weight: as other weights, or turned, as the backend
/// has them.
#[derive(Clone)]
pub(crate) struct LowRankStack {
    /// Of the parts that some adapter changes, one after the other: `[n, parts · rank, in]`.
    pub(crate) down: Array,
    /// Of the weight's outputs, in order.
    pub(crate) parts: Vec<LowRankPart>,
    /// Factors of the sums (DoRA), `[n + 1, out]`; the last are ones. `None` if no adapter has any.
    pub(crate) gain: Option<Array>,
}

/// Some of the outputs of a weight.
#[derive(Clone)]
pub(crate) struct LowRankPart {
    pub(crate) outputs: i32,
    /// `[n, outputs, rank]`; `None` where no adapter changes them.
    pub(crate) up: Option<Array>,
}

impl LowRankStack {
    fn arrays(&self) -> impl Iterator<Item = &Array> {
        let ups = self.parts.iter().filter_map(|part| part.up.as_ref());
        [&self.down].into_iter().chain(ups).chain(&self.gain)
    }

    /// From outputs first to a layout, or back.
    pub(crate) fn turned(self, layout: LowRankLayout) -> mlx::Result<Self> {
        if layout == LowRankLayout::OutputsFirst {
            return Ok(self);
        }
        let turn = |array: &Array| array.swapaxes(-1, -2)?.contiguous();
        let turned = |part: LowRankPart| -> mlx::Result<LowRankPart> {
            Ok(LowRankPart { up: part.up.as_ref().map(turn).transpose()?, ..part })
        };
        let parts = self.parts.into_iter().map(turned).collect::<mlx::Result<_>>()?;
        Ok(Self { down: turn(&self.down)?, parts, gain: self.gain })
    }

    /// Computes the matrices.
    pub(crate) fn evaluate(&self) -> mlx::Result<()> {
        mlx::eval(self.arrays())
    }

    /// Their size.
    pub(crate) fn bytes(&self) -> u64 {
        self.arrays().map(|array| array.nbytes() as u64).sum()
    }

    /// [`Ops::add_low_rank`](super::Ops::add_low_rank) by grouped products, [`Ops::expert_linear`](super::Ops::expert_linear).
    pub(super) fn add_by(
        &self,
        grouped: impl Fn(&Array, &Weight) -> mlx::Result<Array>,
        product: &Array,
        x: &Array,
        chosen: &ChosenExperts,
    ) -> mlx::Result<Array> {
        let [count, choices] = chosen.indices.dims()?;
        let dtype = product.dtype()?;
        let narrow = grouped(x, &Weight::Dense(self.down.clone()))?;
        let mut first = 0;
        let mut terms = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            terms.push(match &part.up {
                Some(up) => {
                    let end = first + up.dim(-1)?;
                    let own = narrow.slice(&[0, 0, first], &[count, choices, end])?.contiguous()?;
                    first = end;
                    grouped(&own, &Weight::Dense(up.clone()))?.astype(dtype)?
                }
                None => Array::zeros(&[count, choices, part.outputs], dtype)?,
            });
        }
        let term = match terms.as_slice() {
            [one] => one.clone(),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), -1)?,
        };
        let sum = product + term.reshape(product.shape())?;
        match &self.gain {
            Some(gain) => {
                let gain = gain.take(&chosen.indices, 0)?.reshape(product.shape())?;
                (sum.astype(Dtype::F32)? * gain).astype(dtype)
            }
            None => Ok(sum),
        }
    }
}
