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

use super::{ChosenExperts, GroupNormWeights, Joined, Term, Weight};
use crate::Activation;
use crate::mixers::HeadGate;
pub(super) use attention::gather;
pub(crate) use attention::{gathered, write};
pub(super) use conv::convolve;
pub(super) use delta_attention::delta_attention;
pub(super) use gated_delta::forward as gated_delta;
pub(super) use latent::{HeadProducts, LatentReader, latent};
pub(super) use mamba1::mamba1;
pub(super) use mamba2::forward as mamba2;
pub(super) use route::route;
pub(super) use rwkv7::{token_shift, wkv};

/// The dtype that activations need, if any: MLX's CPU kernels are many times slower on half-width floats than on float32.
pub(super) fn activations() -> Option<Dtype> {
    mlx::cpu::available().then_some(Dtype::F32)
}

/// See [`Ops::embedding`](super::Ops::embedding).
pub(super) fn embedding(tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Array> {
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

/// See [`Ops::linear`](super::Ops::linear).
pub(super) fn linear(x: &Array, weight: &Weight) -> mlx::Result<Array> {
    match &*weight.for_mlx(x)? {
        Weight::Dense(weight) => x.matmul(&weight.t()?),
        Weight::Packed(packed) => x.quantized_matmul(packed),
    }
}

/// See [`Ops::expert_linear`](super::Ops::expert_linear).
pub(super) fn expert_linear(x: &Array, experts: &ChosenExperts, weight: &Weight) -> mlx::Result<Array> {
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

/// See [`Ops::act`](super::Ops::act).
pub(super) fn act(x: &Array, act: Activation) -> mlx::Result<Array> {
    match act {
        Activation::Silu => x.silu(),
        Activation::Gelu => x.gelu(),
        Activation::GeluTanh => x.gelu_tanh(),
        Activation::QuickGelu => x.gelu_sigmoid(),
        Activation::Sigmoid => x.sigmoid(),
        Activation::Scaled { factor } => Ok(x * factor),
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

/// See [`Ops::gated_act`](super::Ops::gated_act).
pub(super) fn gated_act(gate_up: &Array, act: Activation) -> mlx::Result<Array> {
    let width = gate_up.shape().last().copied().unwrap_or(0) / 2;
    match gate_up.split(&[width], -1)?.as_slice() {
        [gate, up] => gated_act_pair(gate, up, act),
        _ => Err(mlx::Error::new("a gate and up")),
    }
}

/// See [`Ops::gated_act_pair`](super::Ops::gated_act_pair).
pub(super) fn gated_act_pair(gate: &Array, up: &Array, function: Activation) -> mlx::Result<Array> {
    let clipped = |x: &Array, low: Option<f32>, high: f32| -> mlx::Result<Array> {
        let dtype = x.dtype()?;
        let low = low.map(|low| Array::scalar(low, dtype)).transpose()?;
        x.clip(low.as_ref(), Some(&Array::scalar(high, dtype)?))
    };
    match function {
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
        other => Ok(act(gate, other)? * up),
    }
}

/// What a term adds, `[T, hidden]`.
pub(super) fn joined(term: &Term) -> mlx::Result<Array> {
    match &term.joined {
        Joined::Plain => Ok(term.rows.clone()),
        Joined::Scaled(factor) => Ok(&term.rows * *factor),
        Joined::Normed { weight, eps } => fast::rms_norm(&term.rows, Some(weight), *eps),
    }
}

/// See [`Ops::grouped_rms_norm`](super::Ops::grouped_rms_norm). `norm`: of rows, with its weights.
pub(super) fn norm_groups(
    x: &Array,
    weights: &GroupNormWeights,
    norm: impl Fn(&Array, &Array) -> mlx::Result<Array>,
) -> mlx::Result<Array> {
    let [rows, _] = x.dims()?;
    match weights.groups {
        1 => norm(x, &weights.weight),
        groups => {
            let normed = norm(&x.reshape(&[rows * groups, -1])?, &weights.ones)?;
            Ok(normed.reshape(x.shape())? * &weights.weight)
        }
    }
}

/// See [`Ops::norm_columns`](super::Ops::norm_columns). `norm`: of rows, with its weights.
pub(super) fn norm_columns(
    x: &Array,
    weights: [&Array; 2],
    norm: impl Fn(&Array, &Array) -> mlx::Result<Array>,
) -> mlx::Result<Array> {
    let [first, second] = [weights[0].dim(0)?, weights[1].dim(0)?];
    let parts = x.split(&[first, first + second], -1)?;
    let [a, b, rest] = parts.as_slice() else { return Err(mlx::Error::new("three parts of a row")) };
    mlx::concatenate(&[&norm(a, weights[0])?, &norm(b, weights[1])?, rest], -1)
}

/// See [`Ops::head_gate`](super::Ops::head_gate).
pub(super) fn head_gate(gate: &Array, x: &Array, function: HeadGate) -> mlx::Result<Array> {
    let wide = gate.astype(Dtype::F32)?;
    let gate = match function {
        HeadGate::Sigmoid => wide.sigmoid()?,
        HeadGate::Softplus => wide.softplus()?,
    };
    let ([rows, width], [_, heads]) = (x.dims()?, gate.dims()?);
    let by_head = x.reshape(&[rows, heads, -1])?;
    (by_head * gate.astype(x.dtype()?)?.expand_dims(&[-1])?).reshape(&[rows, width])
}

/// See [`Ops::xielu`](super::Ops::xielu).
pub(super) fn xielu(x: &Array, [alpha_p, alpha_n, beta, eps]: [&Array; 4]) -> mlx::Result<Array> {
    let (dtype, x) = (x.dtype()?, x.astype(Dtype::F32)?);
    let alpha_p = alpha_p.softplus()?;
    let alpha_n = beta + alpha_n.softplus()?;
    let above = &alpha_p * x.square()? + beta * &x;
    // Close to zero the difference of the exponential and one would lose its digits.
    let below = (x.minimum(eps)?.expm1()? - &x) * &alpha_n + beta * &x;
    let is_above = x.greater(&Array::scalar(0.0, Dtype::F32)?)?;
    mlx::where_(&is_above, &above, &below)?.astype(dtype)
}
