//! RWKV-7's token shift and its recurrence in MLX's operations, a row after the other.
//!
//! Source: arXiv 2503.14456 §4.

use mlx::{Array, Dtype, fast};

use crate::mixers::WkvState;
use crate::ops::{LayerContext, WkvRows, WkvWeights};

/// A decay is `exp(−this · sigmoid(w))`: `e^(−1/2)`.
const DECAY: f32 = 0.606_531;
/// Of the norm of each head's output.
const NORM_EPS: f32 = 64e-5;
/// Least length that a key is divided by.
const LEAST_LENGTH: f32 = 1e-7;

/// See [`Ops::token_shift`](crate::ops::Ops::token_shift).
pub(in crate::ops) fn token_shift(x: &Array, shares: &Array, layer: LayerContext) -> mlx::Result<Vec<Array>> {
    let wide = x.astype(Dtype::F32)?;
    let before = layer.advance(|run, [last, other]| {
        let rows = run.rows(&wide)?;
        let [count, len, width] = rows.dims()?;
        let joined = mlx::concatenate(&[last, &rows], 1)?;
        let last = joined.slice(&[0, len, 0], &[count, len + 1, width])?;
        Ok((joined.slice(&[0, 0, 0], &[count, len, width])?, [last, other.clone()]))
    })?;
    let change = before.astype(x.dtype()?)? - x;
    let [mixes, width] = shares.dims()?;
    let mix = |at: i32| -> mlx::Result<Array> { Ok(x + &change * shares.slice(&[at, 0], &[at + 1, width])?) };
    (0..mixes).map(mix).collect()
}

/// See [`Ops::wkv`](crate::ops::Ops::wkv).
pub(in crate::ops) fn wkv(
    spec: WkvState,
    rows: &WkvRows,
    weights: &WkvWeights,
    layer: LayerContext,
) -> mlx::Result<Array> {
    let (heads, dim) = (spec.heads as i32, spec.head_dim as i32);
    let by_head = |x: &Array| x.astype(Dtype::F32)?.reshape(&[-1, heads, dim]);
    let (receptance, key, value) = (by_head(rows.receptance)?, by_head(rows.key)?, by_head(rows.value)?);
    let value = match rows.first_values {
        Some([share, first]) => &value + (by_head(first)? - &value) * by_head(share)?.sigmoid()?,
        None => value,
    };
    let rate = by_head(rows.rate)?.sigmoid()?;
    let decay = (by_head(rows.decay)?.sigmoid()? * -DECAY).exp()?;
    let removed = &key * &weights.k_k;
    let length = removed.square()?.sum(&[-1])?.sqrt()?.expand_dims(&[-1])?;
    let removed = removed / length.maximum(&Array::scalar(LEAST_LENGTH, Dtype::F32)?)?;
    let key = key * ((&rate - 1.0) * &weights.k_a + 1.0);
    let flat = |part: &Array| part.reshape(&[-1, heads * dim]);
    let parts =
        [flat(&receptance)?, flat(&decay)?, flat(&key)?, flat(&value)?, flat(&removed)?, flat(&rate)?];
    let joined = mlx::concatenate(&parts.iter().collect::<Vec<_>>(), -1)?;
    let y = layer.advance(|run, [other, state]| {
        let (y, state) = scan(spec, &run.rows(&joined)?, state)?;
        Ok((y, [other.clone(), state]))
    })?;
    let [weight, bias] = &weights.norm;
    let normed = fast::layer_norm(&by_head(&y)?, None, None, NORM_EPS)? * weight + bias;
    let bonus = (receptance * key * &weights.r_k).sum(&[-1])?.expand_dims(&[-1])? * value;
    Ok(flat(&(normed + bonus))?.astype(rows.gate.dtype()?)? * rows.gate)
}

/// `rows`: `[n, len, 6 · inner]`, receptance, decay, key, value, removed key and rate side by side; `state`: `[n, heads,
/// head_dim, head_dim]` → `[n, len, inner]` and the state after it.
fn scan(spec: WkvState, rows: &Array, state: &Array) -> mlx::Result<(Array, Array)> {
    let (heads, dim) = (spec.heads as i32, spec.head_dim as i32);
    let [count, len, _] = rows.dims()?;
    let rows = rows.reshape(&[count, len, 6, heads, dim])?;
    let (mut state, mut outputs) = (state.clone(), Vec::new());
    for at in 0..len {
        let part = |which: i32, shape: &[i32]| -> mlx::Result<Array> {
            let (start, stop) = ([0, at, which, 0, 0], [count, at + 1, which + 1, heads, dim]);
            rows.slice(&start, &stop)?.reshape(shape)
        };
        let column = |which: i32| part(which, &[count, heads, dim, 1]);
        let row = |which: i32| part(which, &[count, heads, 1, dim]);
        let [receptance, removed, value] = [column(0)?, column(4)?, column(3)?];
        let [decay, key, rate] = [row(1)?, row(2)?, row(5)?];
        let replaced = state.matmul(&removed)? * (row(4)? * rate) * -1.0;
        state = &state * decay + value * key + replaced;
        outputs.push(state.matmul(&receptance)?.reshape(&[count, heads * dim])?);
    }
    Ok((mlx::stack(&outputs.iter().collect::<Vec<_>>(), 1)?, state))
}
