//! Gated DeltaNet: a convolution, a recurrence that overwrites what its key stored, a norm, a gate.
//!
//! Source: arXiv 2412.06464 §3.

use mlx::{Array, Dtype, cpu, fast};

use super::conv::CausalConv;
use super::{Fused, Linear, RmsNorm};
use crate::forward::{ForwardContext, StateMetadata};
use crate::kv_cache::{Pool, poisoned};
use crate::weights::Store;
use crate::{GatedDelta, Kernels, KvCache, LoadError};

/// Added to the square of a key's or query's length.
const LENGTH_EPS: f32 = 1e-6;

/// One layer of the gated delta rule.
pub(crate) struct GatedDeltaBlock {
    spec: GatedDelta,
    /// Queries, keys, values, gates, how much is written, steps.
    input: Fused,
    conv: CausalConv,
    /// `[v_heads]` f32, both.
    a_log: Array,
    dt_bias: Array,
    norm: RmsNorm,
    out: Linear,
}

impl GatedDeltaBlock {
    pub(crate) fn load(spec: &GatedDelta, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let qkvz = store.linear_rows(&format!("{path}.in_proj_qkvz"), &apart(spec.k_heads, &widths(spec)))?;
        let shared = spec.v_heads / spec.k_heads;
        let ba = store.linear_rows(&format!("{path}.in_proj_ba"), &apart(spec.k_heads, &[shared, shared]))?;
        Ok(Self {
            spec: spec.clone(),
            input: Fused::new(vec![qkvz, ba])?,
            conv: CausalConv::load(store, &format!("{path}.conv1d"))?,
            a_log: store.float(&format!("{path}.A_log"))?,
            dt_bias: store.float(&format!("{path}.dt_bias"))?,
            norm: store.norm(&format!("{path}.norm"), spec.norm)?,
            out: store.linear(&format!("{path}.out_proj"))?,
        })
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        let own = [&self.a_log, &self.dt_bias, &self.norm.weight];
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
        let projected = self.input.forward(x, kernels)?;
        let y = match kernels {
            Kernels::Cpu => self.in_place(&projected, metadata, pool)?,
            Kernels::Mlx => self.mlx(&projected, metadata, index, pool)?.astype(x.dtype()?)?,
        };
        self.out.forward(&y, kernels)
    }

    fn in_place(&self, projected: &Array, metadata: &StateMetadata, pool: &mut Pool) -> mlx::Result<Array> {
        let gate = self.spec.conv_channels();
        let write = gate + self.spec.values();
        let [last, memory] = pool.take()?;
        let (mixed, last) = self.conv.in_place(projected, 0, metadata, last)?;
        let (y, memory) = cpu::Recurrence {
            rule: cpu::Rule::Delta { write: write as i32, norm: &self.norm.weight, eps: self.norm.eps },
            key_heads: self.spec.k_heads as i32,
            heads: self.spec.v_heads as i32,
            mixed: &mixed,
            projected,
            gate: gate as i32,
            step: (write + self.spec.v_heads) as i32,
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
        let spec = &self.spec;
        let [channels, values, heads] = [spec.conv_channels(), spec.values(), spec.v_heads].map(|n| n as i32);
        let projected = projected.astype(Dtype::F32)?;
        let cuts = [channels, channels + values, channels + values + heads];
        let parts = projected.split(&cuts, -1)?;
        let [channels, gate, write, dt] = parts.as_slice() else { return Err(mlx::Error::new("four parts")) };
        let decay = ((dt + &self.dt_bias).softplus()? * self.a_log.exp()?).negative()?.exp()?;
        let write = write.sigmoid()?;
        let y = metadata.advance(index, pool, |run, [last, memory]| {
            let (mixed, last) = self.conv.mlx(&run.rows(channels)?, last)?;
            let (y, memory) = self.scan(&mixed, (&run.rows(&decay)?, &run.rows(&write)?), memory)?;
            Ok((y, [last, memory]))
        })?;
        let [rows, _] = y.dims()?;
        let by_head = [rows, heads, spec.v_dim as i32];
        let normed = fast::rms_norm(
            &y.reshape(&by_head)?,
            Some(&self.norm.weight.astype(Dtype::F32)?),
            self.norm.eps,
        )?;
        Ok(normed.reshape(&[rows, values])? * gate.silu()?)
    }

    /// `mixed`: `[n, len, channels]`; decays and what is written: `[n, len, v_heads]`; `memory`:
    /// `[n, v_heads, v_dim, k_dim]` → `[n, len, values]` and the memory after it.
    fn scan(
        &self,
        mixed: &Array,
        (decay, write): (&Array, &Array),
        memory: &Array,
    ) -> mlx::Result<(Array, Array)> {
        let spec = &self.spec;
        let [count, len, _] = mixed.dims()?;
        let keys = spec.keys() as i32;
        let parts = mixed.split(&[keys, 2 * keys], -1)?;
        let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
        let [k_heads, k_dim, v_heads, v_dim] =
            [spec.k_heads, spec.k_dim, spec.v_heads, spec.v_dim].map(|n| n as i32);
        let unit = |x: &Array| -> mlx::Result<Array> {
            let x = x.reshape(&[count, len, k_heads, k_dim])?;
            // A mean square is the length's square over the width.
            fast::rms_norm(&x, None, LENGTH_EPS / k_dim as f32)
        };
        let length = (k_dim as f32).sqrt();
        let (q, k) = (unit(q)? / (length * length), unit(k)? / length);
        let v = v.reshape(&[count, len, v_heads, v_dim])?;
        let (y, memory) = fast::gated_delta_update(&fast::GatedDelta {
            q: &q,
            k: &k,
            v: &v,
            gates: decay,
            beta: write,
            state: Some(memory),
            mask: None,
        })?;
        Ok((y.reshape(&[count, len, v_heads * v_dim])?, memory))
    }
}

/// Width of a key head's queries, keys, values and gates in the published projection.
fn widths(spec: &GatedDelta) -> [usize; 4] {
    let values = spec.v_heads / spec.k_heads * spec.v_dim;
    [spec.k_dim, spec.k_dim, values, values]
}

/// Where the rows of a projection come from that is stored head by head and wanted part by part.
fn apart(heads: usize, widths: &[usize]) -> Vec<usize> {
    let whole: usize = widths.iter().sum();
    let mut before = 0;
    let mut rows = Vec::with_capacity(heads * whole);
    for width in widths {
        rows.extend((0..heads * width).map(|row| row / width * whole + before + row % width));
        before += width;
    }
    rows
}
