//! The forward pass of a real-gated linear recurrent unit, a row after the other.

use mlx::{Array, Dtype};

use super::RgLru;
use super::spec::GATES;
use crate::blocks::{Linear, MixerBlock};
use crate::forward::ForwardContext;
use crate::ops::{CausalConv, LayerContext};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// How much gates speed decays up.
const SHARPNESS: f32 = 8.0;

/// One layer.
pub(crate) struct RgLruBlock {
    spec: RgLru,
    channels: Linear,
    gate: Linear,
    conv: CausalConv,
    /// `softplus(rate)`, `[width]` f32.
    rate: Param,
    /// Weights `[heads, block, block]` and biases `[heads, block]` of the gates of input and decay, f32.
    gates: [[Param; 2]; 2],
    out: Linear,
}

impl RgLruBlock {
    pub(crate) fn load(spec: &RgLru, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let mut gate = |name: &str| -> Result<[Param; 2], LoadError> {
            let mut part = |part: &str| store.float(&at(&format!("rg_lru.{name}_{part}")));
            Ok([part("weight")?, part("bias")?])
        };
        let [input, decay] = GATES;
        Ok(Self {
            spec: *spec,
            gates: [gate(input)?, gate(decay)?],
            channels: store.linear(&at("linear_x"))?,
            gate: store.linear(&at("linear_y"))?,
            conv: store.conv(&at("conv_1d"))?,
            rate: store.float(&at("rg_lru.recurrent_param"))?.map(Array::softplus)?,
            out: store.linear(&at("linear_out"))?,
        })
    }

    /// `x`: `[n, len, width]` → the sigmoid of a gate, as wide.
    fn gate_of(&self, x: &Array, [weight, bias]: &[Param; 2]) -> mlx::Result<Array> {
        let [count, len, width] = x.dims()?;
        let by_block = x.reshape(&[count, len, self.spec.heads as i32, -1])?.swapaxes(1, 2)?;
        let gate = by_block.matmul(weight)?.swapaxes(1, 2)? + bias;
        gate.sigmoid()?.reshape(&[count, len, width])
    }

    /// Convolved rows `x`: `[n, len, width]`, with 1 in `begins`, `[n, len, 1]`, for the first row of a sequence; `state`:
    /// `[n, width]` → states after each row and after the last one.
    fn scan(&self, x: &Array, begins: &Array, state: &Array) -> mlx::Result<(Array, Array)> {
        let [count, len, width] = x.dims()?;
        let [input, decay] = &self.gates;
        let logs = self.gate_of(x, decay)? * &self.rate * -SHARPNESS;
        let decays = logs.exp()?;
        let scale = ((&logs * 2.0).exp()? * -1.0 + 1.0).sqrt()?;
        // The first row has no state to make room for.
        let scale = &scale + begins * (&scale * -1.0 + 1.0);
        let written = x * self.gate_of(x, input)? * scale;
        let row = |part: &Array, at: i32| part.slice(&[0, at, 0], &[count, at + 1, width])?.squeeze(&[1]);
        let (mut state, mut states) = (state.clone(), Vec::new());
        for at in 0..len {
            state = state * row(&decays, at)? + row(&written, at)?;
            states.push(state.clone());
        }
        Ok((mlx::stack(&states.iter().collect::<Vec<_>>(), 1)?, state))
    }
}

/// 1 for rows at the beginning of a sequence, else 0: `[T, 1]` f32.
fn begins(ctx: &ForwardContext) -> mlx::Result<Array> {
    let starts = ctx.lengths.0.iter().map(|(position, _)| if *position == 0 { 1.0f32 } else { 0.0 });
    let starts: Vec<f32> = starts.collect();
    Array::from_slice(&starts, &[starts.len() as i32, 1])
}

impl MixerBlock for RgLruBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let gate = self.gate.forward(x)?.gelu_tanh()?;
        let channels = self.channels.forward(x)?.astype(Dtype::F32)?;
        let begins = begins(layer.ctx)?;
        let y = layer.advance(|run, [last, state]| {
            let (mixed, last) = self.conv.forward(&run.rows(&channels)?, last)?;
            let (y, state) = self.scan(&mixed, &run.rows(&begins)?, state)?;
            Ok((y, [last, state]))
        })?;
        self.out.forward(&(y.astype(x.dtype()?)? * gate))
    }
}
