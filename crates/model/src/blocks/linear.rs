//! Matrix products with weights, dense or packed.

use mlx::{Array, Dtype, QuantMode, Quantized};

use crate::Kernels;

/// `x · Wᵀ + b`. The weight is `[out, in]`, dense or packed.
#[derive(Clone)]
pub(crate) struct Linear {
    weight: Weight,
    bias: Option<Array>,
}

#[derive(Clone)]
enum Weight {
    Dense(Array),
    Packed(Quantized),
}

impl Linear {
    pub(crate) fn dense(weight: Array, bias: Option<Array>) -> Self {
        Self { weight: Weight::Dense(weight), bias }
    }

    pub(crate) fn packed(weight: Quantized, bias: Option<Array>) -> Self {
        Self { weight: Weight::Packed(weight), bias }
    }

    /// `[.., in]` → `[.., out]`.
    pub(crate) fn forward(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        let product = self.weight.product(x, kernels)?;
        Ok(match &self.bias {
            Some(bias) => product + bias,
            None => product,
        })
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        let weight = match &self.weight {
            Weight::Dense(weight) => vec![weight],
            Weight::Packed(packed) => {
                [&packed.weight, &packed.scales].into_iter().chain(&packed.biases).collect()
            }
        };
        weight.into_iter().chain(&self.bias).collect()
    }

    /// The same layer with only these outputs, in this order. `rows`: `[n]` i32, each below the outputs' number.
    pub(crate) fn take_rows(self, rows: &Array) -> mlx::Result<Self> {
        let take = |array: &Array| array.take(rows, 0);
        let weight = match &self.weight {
            Weight::Dense(weight) => Weight::Dense(take(weight)?),
            Weight::Packed(packed) => {
                let biases = packed.biases.as_ref().map(take).transpose()?;
                let (weight, scales) = (take(&packed.weight)?, take(&packed.scales)?);
                Weight::Packed(Quantized { weight, scales, biases, ..*packed })
            }
        };
        Ok(Self { weight, bias: self.bias.as_ref().map(take).transpose()? })
    }

    /// One layer that computes both outputs, `first` before `second`, if they are stored alike.
    fn join(first: &Self, second: &Self) -> mlx::Result<Option<Self>> {
        let rows = |a: &Array, b: &Array| mlx::concatenate(&[a, b], 0);
        let bias = match (&first.bias, &second.bias) {
            (Some(a), Some(b)) => Some(rows(a, b)?),
            (None, None) => None,
            _ => return Ok(None),
        };
        let weight = match (&first.weight, &second.weight) {
            (Weight::Dense(a), Weight::Dense(b)) if a.dtype()? == b.dtype()? => Weight::Dense(rows(a, b)?),
            (Weight::Packed(a), Weight::Packed(b))
                if (a.group, a.bits, a.mode) == (b.group, b.bits, b.mode)
                    && a.scales.dtype()? == b.scales.dtype()? =>
            {
                let biases = match (&a.biases, &b.biases) {
                    (Some(a), Some(b)) => Some(rows(a, b)?),
                    _ => None,
                };
                let (weight, scales) = (rows(&a.weight, &b.weight)?, rows(&a.scales, &b.scales)?);
                Weight::Packed(Quantized {
                    weight,
                    scales,
                    biases,
                    group: a.group,
                    bits: a.bits,
                    mode: a.mode,
                })
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { weight, bias }))
    }
}

impl Weight {
    fn product(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        match (self, kernels) {
            (Self::Dense(weight), Kernels::Cpu) => mlx::cpu::matmul_t(x, weight),
            (Self::Dense(weight), Kernels::Mlx) => x.matmul(&weight.t()?),
            (Self::Packed(packed), Kernels::Cpu) => mlx::cpu::qmm(x, packed),
            (Self::Packed(packed), Kernels::Mlx) => x.quantized_matmul(packed),
        }
    }
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
                    mlx::eval(joined.arrays())?;
                    merged.pop();
                    merged.push(joined);
                }
                None => merged.push(part),
            }
        }
        Ok(Self(merged))
    }

    /// `[T, in]` → `[T, sum of outs]`, in the order of the parts.
    pub(crate) fn forward(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        let outputs = self.0.iter().map(|part| part.forward(x, kernels)).collect::<mlx::Result<Vec<_>>>()?;
        match outputs.as_slice() {
            [one] => Ok(one.clone()),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), -1),
        }
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        self.0.iter().flat_map(Linear::arrays).collect()
    }
}

/// Token embeddings, which may also yield the logits.
pub(crate) struct Embedding(pub(crate) Linear);

impl Embedding {
    /// `tokens` `[T]` i32, all within the vocabulary → `[T, hidden]` in `dtype`.
    pub(crate) fn forward(&self, tokens: &Array, dtype: Dtype, kernels: Kernels) -> mlx::Result<Array> {
        match (&self.0.weight, kernels) {
            (Weight::Dense(weight), _) => weight.take(tokens, 0)?.astype(dtype),
            (Weight::Packed(packed), Kernels::Cpu) if packed.mode == QuantMode::Affine => {
                mlx::cpu::embedding(tokens, packed)
            }
            (Weight::Packed(packed), _) => {
                let rows = |array: &Array| array.take(tokens, 0);
                let biases = packed.biases.as_ref().map(rows).transpose()?;
                let (weight, scales) = (rows(&packed.weight)?, rows(&packed.scales)?);
                Quantized { weight, scales, biases, ..*packed }.dequantize(dtype)
            }
        }
    }
}

/// Linear layers of many experts, weights `[experts, out, in]`.
pub(crate) enum SwitchLinear {
    Dense(Array),
    Packed(Quantized),
}

impl SwitchLinear {
    /// Each row through the experts chosen for it. `x`: `[T, in]` or one row for each choice,
    /// `[T, top_k, in]`; `experts`: `[T, top_k]` u32, all below the number of experts →
    /// `[T, top_k, out]`.
    pub(crate) fn forward(&self, x: &Array, experts: &Array, kernels: Kernels) -> mlx::Result<Array> {
        match (self, kernels) {
            (Self::Dense(weight), Kernels::Cpu) => mlx::cpu::gather_mm(x, experts, weight),
            (Self::Packed(packed), Kernels::Cpu) if packed.mode == QuantMode::Affine => {
                mlx::cpu::gather_qmm(x, experts, packed)
            }
            _ => self.mlx(x, experts),
        }
    }

    fn mlx(&self, x: &Array, experts: &Array) -> mlx::Result<Array> {
        // MLX gathers whole matrices: one row each, [T, (1 | top_k), 1, in].
        let x = if x.ndim() == 2 { x.expand_dims(&[1, 2])? } else { x.expand_dims(&[2])? };
        let y = match self {
            Self::Dense(weight) => {
                x.gather_mm(&weight.swapaxes(-1, -2)?, None, Some(experts), mlx::Sorted::No)?
            }
            Self::Packed(packed) => {
                x.gather_qmm(packed, None, Some(experts), mlx::Transpose::Yes, mlx::Sorted::No)?
            }
        };
        y.squeeze(&[2])
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Dense(weight) => vec![weight],
            Self::Packed(packed) => {
                [&packed.weight, &packed.scales].into_iter().chain(&packed.biases).collect()
            }
        }
    }
}
