//! Mamba-2: a convolution, a recurrence whose state decays head by head, a gated norm.
//!
//! Source: arXiv 2405.21060; MLX's operations compute its §6, the CPU kernel its recurrence row by row.

use mlx::{Array, Dtype, cpu};

use super::conv::CausalConv;
use super::{Linear, RmsNorm};
use crate::forward::{ForwardContext, StateMetadata};
use crate::kv_cache::{Pool, poisoned};
use crate::weights::Store;
use crate::{Kernels, KvCache, LoadError, Mamba2};

/// Rows that MLX's operations compute at once; their decays form a square.
const CHUNK: i32 = 64;

/// One Mamba-2 layer.
pub(crate) struct Mamba2Block {
    spec: Mamba2,
    input: Linear,
    conv: CausalConv,
    /// `[heads]` f32, all three.
    a_log: Array,
    dt_bias: Array,
    skip: Array,
    norm: RmsNorm,
    out: Linear,
}

impl Mamba2Block {
    pub(crate) fn load(spec: &Mamba2, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            spec: spec.clone(),
            input: store.linear(&format!("{path}.in_proj"))?,
            conv: CausalConv::load(store, &format!("{path}.conv1d"))?,
            a_log: store.float(&format!("{path}.A_log"))?,
            dt_bias: store.float(&format!("{path}.dt_bias"))?,
            skip: store.float(&format!("{path}.D"))?,
            norm: store.norm(&format!("{path}.norm"), spec.norm)?,
            out: store.linear(&format!("{path}.out_proj"))?,
        })
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        let own = [&self.a_log, &self.dt_bias, &self.skip, &self.norm.weight];
        let linears = self.input.arrays().into_iter().chain(self.out.arrays());
        linears.chain(self.conv.arrays()).chain(own).collect()
    }

    /// `[T, hidden]` → `[T, hidden]`. The final states are written to layer `index` of `cache`.
    pub(crate) fn forward(
        &self,
        x: &Array,
        ctx: &ForwardContext,
        index: usize,
        cache: &mut KvCache,
        kernels: Kernels,
    ) -> mlx::Result<Array> {
        let metadata = ctx.state_of(cache, index)?;
        let pool = cache.pools.get_mut(index).ok_or_else(poisoned)?;
        // The gate, the convolution's channels, then a step for each head.
        let projected = self.input.forward(x, kernels)?;
        let y = match kernels {
            Kernels::Cpu => self.in_place(&projected, metadata, pool)?,
            Kernels::Mlx => self.mlx(&projected, metadata, index, pool)?.astype(x.dtype()?)?,
        };
        self.out.forward(&self.norm.forward(&y, kernels)?, kernels)
    }

    /// What is to be normed, `[T, inner]`.
    fn in_place(&self, projected: &Array, metadata: &StateMetadata, pool: &mut Pool) -> mlx::Result<Array> {
        let inner = self.spec.inner();
        let [last, memory] = pool.take()?;
        let (mixed, last) = self.conv.in_place(projected, inner, metadata, last)?;
        let (y, memory) = cpu::Recurrence {
            rule: cpu::Rule::StateSpace { limits: self.spec.step_limits, skip: &self.skip },
            key_heads: self.spec.groups as i32,
            heads: self.spec.heads as i32,
            mixed: &mixed,
            projected,
            gate: 0,
            step: (inner + self.spec.conv_channels()) as i32,
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
            runs: &metadata.segments,
            pool: memory,
        }
        .run()?;
        pool.put([last, memory]);
        Ok(y)
    }

    fn mlx(
        &self,
        projected: &Array,
        metadata: &StateMetadata,
        index: usize,
        pool: &mut Pool,
    ) -> mlx::Result<Array> {
        let inner = self.spec.inner() as i32;
        let projected = projected.astype(Dtype::F32)?;
        let parts = projected.split(&[inner, inner + self.spec.conv_channels() as i32], -1)?;
        let [gate, channels, dt] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        let dt = (dt + &self.dt_bias).softplus()?;
        let [low, high] = self.spec.step_limits;
        let dt = dt.clip(Some(&Array::scalar(low, Dtype::F32)?), Some(&Array::scalar(high, Dtype::F32)?))?;
        let y = metadata.advance(index, pool, |run, [last, memory]| {
            let (mixed, last) = self.conv.mlx(&run.rows(channels)?, last)?;
            let (y, memory) = self.scan(&mixed, &run.rows(&dt)?, memory)?;
            Ok((y, [last, memory]))
        })?;
        Ok(gate.silu()? * y)
    }

    /// `mixed`: `[n, len, channels]`; `dt`: `[n, len, heads]`; `memory`: `[n, heads, head_dim, state_dim]` →
    /// `[n, len, inner]` and the memory after it.
    fn scan(&self, mixed: &Array, dt: &Array, memory: &Array) -> mlx::Result<(Array, Array)> {
        let [count, len, channels] = mixed.dims()?;
        let heads = self.spec.heads as i32;
        let mut memory = memory.clone();
        let mut outputs = Vec::new();
        for start in (0..len).step_by(CHUNK as usize) {
            let end = len.min(start + CHUNK);
            let mixed = mixed.slice(&[0, start, 0], &[count, end, channels])?;
            let dt = dt.slice(&[0, start, 0], &[count, end, heads])?;
            let (y, after) = self.chunk(&mixed, &dt, &memory)?;
            outputs.push(y);
            memory = after;
        }
        let y = mlx::concatenate(&outputs.iter().collect::<Vec<_>>(), 1)?;
        Ok((y, memory))
    }

    /// As [`Self::scan`], with all pairs of rows at once.
    fn chunk(&self, mixed: &Array, dt: &Array, memory: &Array) -> mlx::Result<(Array, Array)> {
        let [count, len, _] = mixed.dims()?;
        let [heads, dim, groups, keys] =
            [self.spec.heads, self.spec.head_dim, self.spec.groups, self.spec.state_dim].map(|n| n as i32);
        let inner = heads * dim;
        let parts = mixed.split(&[inner, inner + groups * keys], -1)?;
        let [values, written, read] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        // [n, heads, len, _], keys repeated for the heads of a group.
        let by_head = |x: &Array| -> mlx::Result<Array> {
            x.reshape(&[count, len, groups, keys])?.transpose(&[0, 2, 1, 3])?.repeat(heads / groups, 1)
        };
        let (written, read) = (by_head(written)?, by_head(read)?);
        let values = values.reshape(&[count, len, heads, dim])?.transpose(&[0, 2, 1, 3])?;
        let dt = dt.transpose(&[0, 2, 1])?;
        let rate = self.a_log.exp()?.negative()?.expand_dims(&[1])?;
        // The logarithm of how much of the chunk's beginning is left at each row, [n, heads, len].
        let decay = (&dt * &rate).cumsum(-1)?;
        let steps = &values * dt.expand_dims(&[-1])?;
        // How much of row j is left at row i, for j up to i.
        let ages = decay.expand_dims(&[-1])? - decay.expand_dims(&[-2])?;
        let seen = Array::ones(&[len, len], Dtype::F32)?.tril(0)?;
        let never = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        let left = mlx::where_(&seen.astype(Dtype::Bool)?, &ages, &never)?.exp()?;
        let scores = read.matmul(&written.swapaxes(-1, -2)?)? * left;
        let before = read.matmul(&memory.swapaxes(-1, -2)?)? * decay.exp()?.expand_dims(&[-1])?;
        let y = scores.matmul(&steps)? + before + &values * self.skip.expand_dims(&[-1, -2])?;
        let last = decay.slice(&[0, 0, len - 1], &[count, heads, len])?;
        let kept = steps * (&last - &decay).exp()?.expand_dims(&[-1])?;
        let after = kept.swapaxes(-1, -2)?.matmul(&written)? + memory * last.exp()?.expand_dims(&[-1])?;
        Ok((y.transpose(&[0, 2, 1, 3])?.reshape(&[count, len, inner])?, after))
    }
}
