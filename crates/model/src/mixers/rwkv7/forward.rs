//! The forward pass of RWKV-7's time mixing, a row after the other.

use mlx::{Array, Dtype, fast};

use super::TimeMix;
use super::time_mix::SHARES;
use crate::LoadError;
use crate::blocks::{Linear, MixerBlock};
use crate::mixers::token_shift::row_before;
use crate::ops::LayerContext;
use crate::weights::Store;

/// A decay is `exp(−this · sigmoid(w))`: `e^(−1/2)`.
const DECAY: f32 = 0.606_531;
/// Of the norm of each head's output.
const NORM_EPS: f32 = 64e-5;
/// Least length that a key is divided by.
const LEAST_LENGTH: f32 = 1e-7;

/// Time mixing with its weights.
pub(in crate::mixers) struct TimeMixBlock {
    spec: TimeMix,
    /// `[hidden]` each.
    shares: Vec<Array>,
    receptance: Linear,
    key: Linear,
    value: Linear,
    decay: Narrow,
    rate: Narrow,
    gate: Narrow,
    value_share: Option<Narrow>,
    /// `[heads, head_dim]` f32 each: of keys that are removed, of keys that are written, of the bonus, and the norm.
    k_k: Array,
    k_a: Array,
    r_k: Array,
    norm: [Array; 2],
    out: Linear,
}

/// A projection through a narrow vector.
struct Narrow([Linear; 2]);

impl Narrow {
    fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |index| store.linear(&format!("{path}.lora.{index}"));
        Ok(Self([linear(0)?, linear(2)?]))
    }

    fn forward(&self, x: &Array, act: fn(&Array) -> mlx::Result<Array>) -> mlx::Result<Array> {
        let Self([down, up]) = self;
        up.forward(&act(&down.forward(x)?)?)
    }
}

/// What the recurrence takes of each row, `[T, heads · head_dim]` f32 each.
struct Inputs {
    receptance: Array,
    decay: Array,
    key: Array,
    value: Array,
    removed: Array,
    rate: Array,
}

impl TimeMixBlock {
    pub(in crate::mixers) fn load(spec: &TimeMix, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let shares = SHARES.into_iter().map(|name| store.vector(&at(name)));
        Ok(Self {
            spec: *spec,
            shares: shares.collect::<Result<_, _>>()?,
            receptance: store.linear(&at("r_proj"))?,
            key: store.linear(&at("k_proj"))?,
            value: store.linear(&at("v_proj"))?,
            decay: Narrow::load(store, &at("w_lora"))?,
            rate: Narrow::load(store, &at("a_lora"))?,
            gate: Narrow::load(store, &at("g_lora"))?,
            value_share: match spec.mixes_first_values {
                true => Some(Narrow::load(store, &at("v_lora"))?),
                false => None,
            },
            k_k: store.float(&at("k_k"))?,
            k_a: store.float(&at("k_a"))?,
            r_k: store.float(&at("r_k"))?,
            norm: [store.float(&at("g_norm.weight"))?, store.float(&at("g_norm.bias"))?],
            out: store.linear(&at("o_proj"))?,
        })
    }

    fn by_head(&self, x: &Array) -> mlx::Result<Array> {
        x.astype(Dtype::F32)?.reshape(&[-1, self.spec.state.heads as i32, self.spec.state.head_dim as i32])
    }

    /// The inputs of the recurrence, by head, and the output's gate. `[r, w, k, v, a, g]`: what each projection sees.
    fn inputs(&self, seen: &[Array; 6], layer: &LayerContext) -> mlx::Result<(Inputs, Array)> {
        let [r, w, k, v, a, g] = seen;
        let same = |x: &Array| Ok(x.clone());
        let value = self.by_head(&self.value.forward(v)?)?;
        let first = layer.ctx.first_values.get_or_init(|| value.clone());
        let value = match &self.value_share {
            Some(share) => {
                let share = self.by_head(&share.forward(v, same)?)?.sigmoid()?;
                &value + (first - &value) * share
            }
            None => value,
        };
        let rate = self.by_head(&self.rate.forward(a, same)?)?.sigmoid()?;
        let decay = self.by_head(&self.decay.forward(w, Array::tanh)?)?.sigmoid()?;
        let key = self.by_head(&self.key.forward(k)?)?;
        let removed = &key * &self.k_k;
        let length = removed.square()?.sum(&[-1])?.sqrt()?.expand_dims(&[-1])?;
        let removed = removed / length.maximum(&Array::scalar(LEAST_LENGTH, Dtype::F32)?)?;
        let inputs = Inputs {
            receptance: self.by_head(&self.receptance.forward(r)?)?,
            decay: (decay * -DECAY).exp()?,
            key: key * ((&rate - 1.0) * &self.k_a + 1.0),
            value,
            removed,
            rate,
        };
        Ok((inputs, self.gate.forward(g, Array::sigmoid)?))
    }

    /// `rows`: `[n, len, 6 · inner]`, the inputs side by side; `state`: `[n, heads, head_dim, head_dim]` →
    /// `[n, len, inner]` and the state after it.
    fn scan(&self, rows: &Array, state: &Array) -> mlx::Result<(Array, Array)> {
        let (heads, dim) = (self.spec.state.heads as i32, self.spec.state.head_dim as i32);
        let [count, len, _] = rows.dims()?;
        let rows = rows.reshape(&[count, len, 6, heads, dim])?;
        let (mut state, mut outputs) = (state.clone(), Vec::new());
        for at in 0..len {
            let part = |which: i32, column: bool| -> mlx::Result<Array> {
                let (start, stop) = ([0, at, which, 0, 0], [count, at + 1, which + 1, heads, dim]);
                let part = rows.slice(&start, &stop)?;
                part.reshape(&if column { [count, heads, dim, 1] } else { [count, heads, 1, dim] })
            };
            let [receptance, removed, value] = [part(0, true)?, part(4, true)?, part(3, true)?];
            let [decay, key, rate] = [part(1, false)?, part(2, false)?, part(5, false)?];
            let replaced = state.matmul(&removed)? * (part(4, false)? * rate) * -1.0;
            state = &state * decay + value * key + replaced;
            outputs.push(state.matmul(&receptance)?.reshape(&[count, heads * dim])?);
        }
        Ok((mlx::stack(&outputs.iter().collect::<Vec<_>>(), 1)?, state))
    }
}

impl MixerBlock for TimeMixBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let change = row_before(x, layer.part(0))? - x;
        let seen: Vec<Array> = self.shares.iter().map(|share| x + &change * share).collect();
        let seen: [Array; 6] = seen.try_into().map_err(|_| mlx::Error::new("six projections"))?;
        let layer = layer.part(1);
        let (inputs, gate) = self.inputs(&seen, &layer)?;
        let Inputs { receptance, decay, key, value, removed, rate } = &inputs;
        let inner = self.spec.inner() as i32;
        let flat: Vec<Array> = [receptance, decay, key, value, removed, rate]
            .into_iter()
            .map(|part| part.reshape(&[-1, inner]))
            .collect::<mlx::Result<_>>()?;
        let rows = mlx::concatenate(&flat.iter().collect::<Vec<_>>(), -1)?;
        let y = layer.advance(|run, [other, state]| {
            let (y, state) = self.scan(&run.rows(&rows)?, state)?;
            Ok((y, [other.clone(), state]))
        })?;
        let [weight, bias] = &self.norm;
        let normed = fast::layer_norm(&self.by_head(&y)?, None, None, NORM_EPS)? * weight + bias;
        let bonus = (receptance * key * &self.r_k).sum(&[-1])?.expand_dims(&[-1])? * value;
        let y = (normed + bonus).reshape(&[-1, inner])?.astype(x.dtype()?)?;
        self.out.forward(&(y * gate))
    }

    fn arrays(&self) -> Vec<&Array> {
        let narrow = [&self.decay, &self.rate, &self.gate].into_iter().chain(&self.value_share);
        let linears = [&self.receptance, &self.key, &self.value, &self.out];
        let linears = linears.into_iter().chain(narrow.flat_map(|Narrow(pair)| pair));
        let own = [&self.k_k, &self.k_a, &self.r_k];
        linears.flat_map(Linear::arrays).chain(&self.shares).chain(own).chain(&self.norm).collect()
    }
}
