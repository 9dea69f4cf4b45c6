//! The forward pass of RWKV-7's time mixing.

use mlx::Array;

use super::TimeMix;
use super::time_mix::SHARES;
use crate::blocks::{Linear, MixerBlock};
use crate::ops::{LayerContext, Ops, WkvRows, WkvWeights};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// Time mixing with its weights.
pub(in crate::mixers) struct TimeMixBlock {
    spec: TimeMix,
    ops: Ops,
    /// `[6, hidden]`
    shares: Param,
    receptance: Linear,
    key: Linear,
    value: Linear,
    decay: Narrow,
    rate: Narrow,
    gate: Narrow,
    value_share: Option<Narrow>,
    recurrence: WkvWeights,
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

impl TimeMixBlock {
    pub(in crate::mixers) fn load(spec: &TimeMix, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let shares = SHARES.into_iter().map(|name| store.vector(&at(name)));
        let shares = shares.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            spec: *spec,
            ops: store.ops(),
            shares: store
                .params()
                .hold(mlx::stack(&shares.iter().map(|share| &**share).collect::<Vec<_>>(), 0)?),
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
            recurrence: WkvWeights {
                k_k: store.float(&at("k_k"))?,
                k_a: store.float(&at("k_a"))?,
                r_k: store.float(&at("r_k"))?,
                norm: [store.float(&at("g_norm.weight"))?, store.float(&at("g_norm.bias"))?],
            },
            out: store.linear(&at("o_proj"))?,
        })
    }
}

impl MixerBlock for TimeMixBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let seen = self.ops.token_shift(x, &self.shares, layer.part(0))?;
        let [r, w, k, v, a, g] = seen.as_slice() else { return Err(mlx::Error::new("six projections")) };
        let same = |x: &Array| Ok(x.clone());
        let value = self.value.forward(v)?;
        let first = layer.ctx.first_values.get_or_init(|| value.clone());
        let share = self.value_share.as_ref().map(|share| share.forward(v, same)).transpose()?;
        let rows = WkvRows {
            receptance: &self.receptance.forward(r)?,
            decay: &self.decay.forward(w, Array::tanh)?,
            key: &self.key.forward(k)?,
            value: &value,
            rate: &self.rate.forward(a, same)?,
            gate: &self.gate.forward(g, Array::sigmoid)?,
            first_values: share.as_ref().map(|share| [share, first]),
        };
        self.out.forward(&self.ops.wkv(self.spec.state, &rows, &self.recurrence, layer.part(1))?)
    }
}
