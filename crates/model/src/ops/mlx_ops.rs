//! MLX's own operations: right on every backend.

mod attention;
mod conv;
mod delta_attention;
mod gated_delta;
mod latent;
mod mamba1;
mod mamba2;
mod route;
mod rwkv7;

use mlx::{Array, Dtype, Quantized, fast};

use super::{AttentionCall, AttentionNeeds, ChosenExperts, ExpertVectors, LayerContext, Ops, Term, Weight};
use crate::forward::{AttentionPath, StatePath};
use crate::ops::{GatedDeltaWeights, Mamba2Weights};
use crate::{Activation, GatedDelta, Mamba2, Mixer, Router};
pub(super) use attention::gather;
pub(crate) use attention::{gathered, write};
pub(super) use conv::convolve;
pub(super) use delta_attention::delta_attention;
pub(super) use latent::{HeadProducts, LatentReader, latent};
pub(super) use mamba1::mamba1;
pub(super) use rwkv7::{token_shift, wkv};

/// MLX's own operations.
pub(super) struct MlxOps;

impl Ops for MlxOps {
    fn activations(&self) -> Option<Dtype> {
        // MLX's CPU kernels are many times slower on half-width floats than on float32.
        mlx::cpu::available().then_some(Dtype::F32)
    }

    fn reads_dense(&self, _dtype: Dtype) -> bool {
        false
    }

    fn attention_path(&self, _needs: &AttentionNeeds) -> AttentionPath {
        AttentionPath::Gather
    }

    fn state_path(&self, _mixers: &[&Mixer]) -> StatePath {
        StatePath::Gather
    }

    fn embedding(&self, tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Array> {
        let rows = |array: &Array| array.take(tokens, 0);
        match table {
            Weight::Dense(weight) => rows(weight)?.astype(dtype),
            Weight::Packed(packed) => {
                let biases = packed.biases.as_ref().map(rows).transpose()?;
                let (weight, scales) = (rows(&packed.weight)?, rows(&packed.scales)?);
                Quantized { weight, scales, biases, ..*packed }.dequantize(dtype)
            }
        }
    }

    fn linear(&self, x: &Array, weight: &Weight) -> mlx::Result<Array> {
        match &*weight.for_mlx(x)? {
            Weight::Dense(weight) => x.matmul(&weight.t()?),
            Weight::Packed(packed) => x.quantized_matmul(packed),
        }
    }

    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> mlx::Result<Array> {
        let experts = &experts.indices;
        // MLX gathers whole matrices: one row each, [T, (1 | top_k), 1, in].
        let x = if x.ndim() == 2 { x.expand_dims(&[1, 2])? } else { x.expand_dims(&[2])? };
        let y = match &*weight.for_mlx(&x)? {
            Weight::Dense(weight) => {
                x.gather_mm(&weight.swapaxes(-1, -2)?, None, Some(experts), mlx::Sorted::No)?
            }
            Weight::Packed(packed) => {
                x.gather_qmm(packed, None, Some(experts), mlx::Transpose::Yes, mlx::Sorted::No)?
            }
        };
        y.squeeze(&[2])
    }

    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize,
    ) -> mlx::Result<(ChosenExperts, Array)> {
        let (experts, weights) = route::route(logits, router, vectors.correction, top_k)?;
        let weights = vectors.scaled(&experts, weights)?;
        Ok((experts, weights))
    }

    fn weighted_sum(&self, parts: &Array, weights: &Array) -> mlx::Result<Array> {
        (parts * weights.expand_dims(&[-1])?.astype(parts.dtype()?)?).sum(&[-2])
    }

    fn add_term(&self, sum: &Array, term: &Array, gate: Option<&Array>) -> mlx::Result<Array> {
        Ok(match gate {
            Some(gate) => sum + gate.sigmoid()? * term,
            None => sum + term,
        })
    }

    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> mlx::Result<Array> {
        fast::rms_norm(x, Some(weight), eps)
    }

    fn add_rms_norm(
        &self,
        sum: &Array,
        term: &Term,
        weight: &Array,
        eps: f32,
    ) -> mlx::Result<(Array, Array)> {
        let sum = sum + self.joined(term)?;
        let normed = self.rms_norm(&sum, weight, eps)?;
        Ok((sum, normed))
    }

    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> mlx::Result<Array> {
        fast::layer_norm(x, Some(weight), bias, eps)
    }

    fn act(&self, x: &Array, act: Activation) -> mlx::Result<Array> {
        match act {
            Activation::Silu => x.silu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::QuickGelu => x.gelu_sigmoid(),
            Activation::Relu => x.relu(),
            Activation::Relu2 => x.relu()?.square(),
            Activation::SparseGelu { share } => {
                let deviations = Array::scalar(2.0 * share - 1.0, Dtype::F32)?.erfinv()? * 2f32.sqrt();
                let spread = x.std(&[-1])? * deviations.astype(x.dtype()?)?;
                let cut = (x.mean(&[-1])? + spread).expand_dims(&[-1])?;
                (x - cut).relu()?.gelu_tanh()
            }
            Activation::ClippedSwiglu { .. }
            | Activation::LimitedSilu { .. }
            | Activation::ClampedSilu { .. }
            | Activation::Situ { .. }
            | Activation::Xielu => Err(mlx::Error::new("an activation of one array without weights")),
        }
    }

    fn gated_act(&self, gate_up: &Array, act: Activation) -> mlx::Result<Array> {
        let width = gate_up.shape().last().copied().unwrap_or(0) / 2;
        match gate_up.split(&[width], -1)?.as_slice() {
            [gate, up] => self.gated_act_pair(gate, up, act),
            _ => Err(mlx::Error::new("a gate and up")),
        }
    }

    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> mlx::Result<Array> {
        let clipped = |x: &Array, low: Option<f32>, high: f32| -> mlx::Result<Array> {
            let dtype = x.dtype()?;
            let low = low.map(|low| Array::scalar(low, dtype)).transpose()?;
            x.clip(low.as_ref(), Some(&Array::scalar(high, dtype)?))
        };
        match act {
            Activation::ClippedSwiglu { alpha, limit } => {
                let (gate, up) = (clipped(gate, None, limit)?, clipped(up, Some(-limit), limit)?);
                Ok(&gate * (&gate * alpha).sigmoid()? * (up + 1.0))
            }
            Activation::LimitedSilu { limit } => {
                Ok(clipped(&gate.silu()?, None, limit)? * clipped(up, Some(-limit), limit)?)
            }
            Activation::ClampedSilu { limit } => {
                Ok(clipped(gate, None, limit)?.silu()? * clipped(up, Some(-limit), limit)?)
            }
            Activation::Situ { beta, linear_beta } => {
                let dtype = up.dtype()?;
                let (gate, up) = (gate.astype(Dtype::F32)?, up.astype(Dtype::F32)?);
                let up = match linear_beta {
                    Some(limit) => (up / limit).tanh()? * limit,
                    None => up,
                };
                ((&gate / beta).tanh()? * beta * gate.sigmoid()? * up).astype(dtype)
            }
            act => Ok(self.act(gate, act)? * up),
        }
    }

    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> mlx::Result<Array> {
        Ok(gate.sigmoid()? * x)
    }

    fn attend(&self, call: AttentionCall) -> mlx::Result<Array> {
        gather(call)
    }

    fn mamba2(
        &self,
        spec: &Mamba2,
        weights: &Mamba2Weights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        mamba2::forward(spec, weights, projected, layer)
    }

    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        gated_delta::forward(spec, weights, projected, layer)
    }
}
