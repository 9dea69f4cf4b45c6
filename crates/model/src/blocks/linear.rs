//! Matrix products with weights, dense or packed.

use std::ops::Range;

use mlx::cpu::StoredExperts;
use mlx::{Array, Dtype};

use super::{AdaptedWeight, HadamardRotation};
use crate::ops::{ChosenExperts, Ops};
use crate::params::{Held, Param};
use crate::shard::Shard;

/// `x · Wᵀ + b`, and the products of the rows' adapters. The weight is `[out, in]`.
#[derive(Clone)]
pub(crate) struct Linear {
    weight: AdaptedWeight,
    bias: Option<Param>,
    /// Of what it reads.
    rotation: Option<HadamardRotation>,
    /// Of encoders that were trained for activations in few bits.
    limits: Option<Limits>,
    /// Where products are parts of a sum over ranks, to which the bias is added once.
    shard: Option<Shard>,
}

/// Names of the ends of ranges, scalars beside a layer's weight.
pub(crate) const LIMITS: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];

/// Ranges that what a layer reads and what it gives are clipped to: the ends that [`LIMITS`] names, `[]` each.
#[derive(Clone)]
pub(crate) struct Limits(pub(crate) [Param; 4]);

impl Limits {
    /// A product within the limits of what it reads and gives.
    fn within(&self, x: &Array, product: impl FnOnce(&Array) -> mlx::Result<Array>) -> mlx::Result<Array> {
        let Self([input_min, input_max, output_min, output_max]) = self;
        product(&x.clip(Some(input_min), Some(input_max))?)?.clip(Some(output_min), Some(output_max))
    }
}

impl Linear {
    pub(crate) fn new(weight: AdaptedWeight, bias: Option<Param>) -> Self {
        Self { weight, bias, rotation: None, limits: None, shard: None }
    }

    /// This layer with products that ranks add.
    pub(crate) fn summed(self, shard: Option<Shard>) -> Self {
        Self { shard, ..self }
    }

    /// This layer within ranges.
    pub(crate) fn limited(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }
    }

    /// This layer without adapters: none may change it, because its rows are not those of the pass.
    pub(crate) fn without_adapters(self) -> mlx::Result<Self> {
        Ok(Self { weight: self.weight.without_adapters()?, ..self })
    }

    /// This layer for weights that were rotated. No adapter may change them: it would read other inputs than they do.
    pub(crate) fn rotated(self, rotation: Option<HadamardRotation>) -> mlx::Result<Self> {
        match rotation {
            Some(_) => Ok(Self { rotation, ..self.without_adapters()? }),
            None => Ok(self),
        }
    }

    /// `[.., in]` → `[.., out]`.
    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        match &self.limits {
            Some(limits) => limits.within(x, |x| self.product(x)),
            None => self.product(x),
        }
    }

    fn product(&self, x: &Array) -> mlx::Result<Array> {
        let Some(shard) = &self.shard else { return self.own_product(x, self.bias.as_deref()) };
        let sum = shard.sum(&self.own_product(x, None)?)?;
        Ok(match self.bias.as_deref() {
            Some(bias) => sum + bias,
            None => sum,
        })
    }

    fn own_product(&self, x: &Array, bias: Option<&Array>) -> mlx::Result<Array> {
        match &self.rotation {
            Some(rotation) => self.weight.product(&rotation.apply(x)?, bias),
            None => self.weight.product(x, bias),
        }
    }

    /// Makes its weight and bias resident.
    fn evaluate(&self) -> mlx::Result<()> {
        evaluate(&self.weight, self.bias.as_ref())
    }

    /// This layer with only these outputs, in this order. `rows`: `[n]` i32, each below the outputs' number.
    pub(crate) fn take_rows(self, rows: &Array) -> mlx::Result<Self> {
        let bias = self.bias.as_ref().map(|bias| bias.map(|bias| bias.take(rows, 0))).transpose()?;
        Ok(Self { weight: self.weight.take_rows(rows)?, bias, ..self })
    }

    /// One layer that computes both outputs, `first` before `second`, if they are stored alike.
    fn join(first: &Self, second: &Self) -> mlx::Result<Option<Self>> {
        let is_plain =
            |linear: &Self| linear.rotation.is_none() && linear.limits.is_none() && linear.shard.is_none();
        if !is_plain(first) || !is_plain(second) {
            return Ok(None);
        }
        let bias = match (&first.bias, &second.bias) {
            (Some(a), Some(b)) => Some(a.map(|a| mlx::concatenate(&[a, b], 0))?),
            (None, None) => None,
            _ => return Ok(None),
        };
        let weight = AdaptedWeight::join(&first.weight, &second.weight)?;
        Ok(weight.map(|weight| Self::new(weight, bias)))
    }
}

fn evaluate(weight: &AdaptedWeight, bias: Option<&Param>) -> mlx::Result<()> {
    mlx::eval(weight.weight().arrays().into_iter().chain(bias.map(|bias| &**bias)))
}

/// Several linear layers over the same input, merged into as few products as their storage allows.
pub(crate) struct Fused(Vec<Linear>);

impl Fused {
    pub(crate) fn new(parts: Vec<Linear>) -> mlx::Result<Self> {
        let mut merged: Vec<Linear> = Vec::new();
        for part in parts {
            let joined = merged.last().map(|last| Linear::join(last, &part)).transpose()?.flatten();
            match joined {
                Some(joined) => {
                    // Evaluated one by one, so that loading never holds all parts twice.
                    joined.evaluate()?;
                    merged.pop();
                    merged.push(joined);
                }
                None => merged.push(part),
            }
        }
        Ok(Self(merged))
    }

    /// `[T, in]` → `[T, sum of outs]`, in the order of the parts.
    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let outputs = self.0.iter().map(|part| part.forward(x)).collect::<mlx::Result<Vec<_>>>()?;
        match outputs.as_slice() {
            [one] => Ok(one.clone()),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), -1),
        }
    }
}

/// Token embeddings, which may also yield the logits.
pub(crate) struct Embedding(pub(crate) Linear);

impl Embedding {
    /// These rows as a linear layer of its own.
    pub(crate) fn rows(&self, rows: Range<usize>) -> mlx::Result<Linear> {
        let rows: Vec<i32> = rows.map(|row| row as i32).collect();
        self.0.clone().take_rows(&Array::from_slice(&rows, &[rows.len() as i32])?)
    }

    /// `tokens` `[T]` i32, all within the vocabulary → `[T, hidden]` in `dtype`.
    pub(crate) fn forward(&self, tokens: &Array, dtype: Dtype) -> mlx::Result<Array> {
        let (ops, weight) = (self.0.weight.ops(), self.0.weight.weight());
        match &self.0.rotation {
            Some(rotation) => rotation.rows(weight, tokens)?.astype(dtype),
            None => ops.embedding(tokens, weight, dtype),
        }
    }
}

/// Linear layers of many experts, weights `[experts, out, in]`.
pub(crate) struct ExpertLinear {
    weight: ExpertWeight,
    /// `[experts, out]`
    bias: Option<Param>,
}

/// The weights of experts.
enum ExpertWeight {
    Resident(AdaptedWeight),
    /// In the checkpoint's files. No adapter changes them.
    Stored(Ops, StoredExperts),
}

impl ExpertLinear {
    pub(crate) fn new(weight: AdaptedWeight, bias: Option<Param>) -> Self {
        Self { weight: ExpertWeight::Resident(weight), bias }
    }

    /// With weights that are read from files while a product runs.
    pub(crate) fn stored(ops: Ops, weight: StoredExperts, bias: Option<Param>) -> Self {
        Self { weight: ExpertWeight::Stored(ops, weight), bias }
    }

    /// One layer that computes both outputs, `first` before `second`, if they are stored alike.
    pub(crate) fn join(first: &Self, second: &Self) -> mlx::Result<Option<Self>> {
        let (ExpertWeight::Resident(own), ExpertWeight::Resident(other)) = (&first.weight, &second.weight)
        else {
            return Ok(None);
        };
        let bias = match (&first.bias, &second.bias) {
            (Some(a), Some(b)) => Some(a.map(|a| mlx::concatenate(&[a, b], -1))?),
            (None, None) => None,
            _ => return Ok(None),
        };
        let Some(weight) = AdaptedWeight::join(own, other)? else { return Ok(None) };
        // Evaluated at once, so that loading never holds the parts of several layers twice.
        evaluate(&weight, bias.as_ref())?;
        Ok(Some(Self::new(weight, bias)))
    }

    /// Each row through the experts chosen for it, see [`Ops::expert_linear`](crate::ops::Ops::expert_linear).
    pub(crate) fn forward(&self, x: &Array, experts: &ChosenExperts) -> mlx::Result<Array> {
        let (ops, product) = match &self.weight {
            ExpertWeight::Resident(weight) => (weight.ops(), weight.expert_product(x, experts)?),
            ExpertWeight::Stored(ops, weight) => (ops, ops.stored_expert_linear(x, experts, weight)?),
        };
        match &self.bias {
            Some(bias) => ops.add_expert_bias(&product, bias, experts),
            None => Ok(product),
        }
    }
}
