//! Softmax attention over grouped heads, with keys and values in blocks.
//!
//! Two paths compute the same: MLX's own operations (scatter, gather, fused attention), and one CPU
//! primitive that norms, rotates, writes in place and attends.

use mlx::{Array, cpu, fast};
use omnibus_kv::KvFormat;

use super::rotary::Rotation;
use super::{Fused, Linear, RmsNorm};
use crate::forward::{AttentionMetadata, ForwardContext, Gather, Rows};
use crate::kv_cache::{Pool, poisoned};
use crate::weights::Store;
use crate::{
    Attention, AttentionSpan, Kernels, KvCache, KvPath, LoadError, Position, QkNorm, RotaryPairing, kv_format,
};

/// One attention layer.
pub(crate) struct AttentionBlock {
    spec: Attention,
    qkv: Fused,
    out: Linear,
    qk_norm: Option<(RmsNorm, RmsNorm)>,
    rotation: Option<Rotation>,
    gate: Option<Linear>,
}

impl AttentionBlock {
    pub(crate) fn load(spec: &Attention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let (q, k, v, out) = (linear("q_proj")?, linear("k_proj")?, linear("v_proj")?, linear("o_proj")?);
        let (q, gate) = if spec.out_gate { halves(q, spec)? } else { (q, None) };
        let qk_norm = match spec.qk_norm {
            Some(QkNorm::PerHead(norm)) => Some((
                store.norm(&format!("{path}.q_norm"), norm)?,
                store.norm(&format!("{path}.k_norm"), norm)?,
            )),
            None => None,
        };
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope)?),
            Position::None => None,
        };
        Ok(Self { spec: spec.clone(), qkv: Fused::new(vec![q, k, v])?, out, qk_norm, rotation, gate })
    }

    /// Changes which earlier positions a query attends to.
    pub(crate) fn set_span(&mut self, span: AttentionSpan) {
        self.spec.span = span;
    }

    /// `[T, hidden]` → `[T, hidden]`. The rows' keys and values are written to layer `index` of `cache`.
    pub(crate) fn forward(
        &self,
        x: &Array,
        ctx: &ForwardContext,
        index: usize,
        cache: &mut KvCache,
        kernels: Kernels,
    ) -> mlx::Result<Array> {
        let qkv = self.qkv.forward(x, kernels)?;
        let attended = match ctx.kv_path {
            KvPath::Paged => self.in_place(&qkv, ctx, index, cache)?,
            KvPath::Gather => self.gathered(&qkv, ctx, index, cache)?,
        };
        let attended = match (&self.gate, kernels) {
            (Some(gate), Kernels::Cpu) => {
                cpu::gated2(&gate.forward(x, kernels)?, &attended, cpu::Act::Sigmoid)?
            }
            (Some(gate), Kernels::Mlx) => gate.forward(x, kernels)?.sigmoid()? * attended,
            (None, _) => attended,
        };
        self.out.forward(&attended, kernels)
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        let norms = self.qk_norm.iter().flat_map(|(q, k)| [&q.weight, &k.weight]);
        let gate = self.gate.iter().flat_map(Linear::arrays);
        self.qkv.arrays().into_iter().chain(self.out.arrays()).chain(norms).chain(gate).collect()
    }

    fn in_place(
        &self,
        qkv: &Array,
        ctx: &ForwardContext,
        index: usize,
        cache: &mut KvCache,
    ) -> mlx::Result<Array> {
        let mut attended: Option<Array> = None;
        for (at, format, group) in ctx.attention_pools(cache, index)? {
            let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
            // A row that reads nothing of a pool has zeros there.
            let part = self.in_pool(qkv, ctx, group, pool, format)?;
            attended = Some(attended.map_or(part.clone(), |others| others + part));
        }
        attended.ok_or_else(poisoned)
    }

    /// The rows that read this pool.
    fn in_pool(
        &self,
        qkv: &Array,
        ctx: &ForwardContext,
        group: &AttentionMetadata,
        pool: &mut Pool,
        format: KvFormat,
    ) -> mlx::Result<Array> {
        let rope = self.rotation.as_ref().and_then(|rotation| {
            Some(cpu::Rope {
                freqs: rotation.radians.as_ref()?,
                dims: rotation.rope.dims as i32,
                pairs: match rotation.rope.pairs {
                    RotaryPairing::Halves => cpu::RotaryPairing::Halves,
                    RotaryPairing::Interleaved => cpu::RotaryPairing::Interleaved,
                },
                magnitude: rotation.magnitude,
            })
        });
        let (window, sink_tokens) = match self.spec.span {
            AttentionSpan::Full => (None, 0),
            AttentionSpan::Window(tokens) => (Some(tokens as i32), 0),
            AttentionSpan::Sinks { tokens, sink_tokens } => (Some(tokens as i32), sink_tokens as i32),
        };
        let [k_pool, v_pool] = pool.take()?;
        let cpu::AttentionOutput { out, k_pool, v_pool } = cpu::PagedAttention {
            qkv,
            heads: self.spec.heads as i32,
            kv_heads: self.spec.kv_heads as i32,
            head_dim: self.spec.head_dim as i32,
            q_norm: self.qk_norm.as_ref().map(|(q, _)| q.of_heads()),
            k_norm: self.qk_norm.as_ref().map(|(_, k)| k.of_heads()),
            positions: &ctx.positions,
            rope,
            scale: self.spec.scale,
            softcap: None,
            window,
            sink_tokens,
            sinks: None,
            k_pool,
            v_pool,
            packing: kv_format::packing_of(format),
            metadata: cpu::AttentionMetadata {
                slots: &group.slots,
                segments: &group.segments,
                tables: &group.tables,
            },
        }
        .run()?;
        pool.put([k_pool, v_pool]);
        Ok(out)
    }

    fn gathered(
        &self,
        qkv: &Array,
        ctx: &ForwardContext,
        index: usize,
        cache: &mut KvCache,
    ) -> mlx::Result<Array> {
        let [rows, _] = qkv.dims()?;
        let (heads, kv_heads, dim) =
            (self.spec.heads as i32, self.spec.kv_heads as i32, self.spec.head_dim as i32);
        let parts = qkv.split(&[heads * dim, (heads + kv_heads) * dim], -1)?;
        let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
        let (q, k) = (q.reshape(&[rows, heads, dim])?, k.reshape(&[rows, kv_heads, dim])?);
        let v = v.reshape(&[rows, kv_heads, dim])?;
        let (q, k) = match &self.qk_norm {
            Some((q_norm, k_norm)) => (q_norm.forward(&q, Kernels::Mlx)?, k_norm.forward(&k, Kernels::Mlx)?),
            None => (q, k),
        };
        let (q, k) = match &self.rotation {
            Some(rotation) => {
                let rotate = |x: &Array| rotation.apply(x, &ctx.positions, &ctx.lengths);
                (rotate(&q)?, rotate(&k)?)
            }
            None => (q, k),
        };
        let (mut attended, mut order) = (Vec::new(), None);
        for (at, format, group) in ctx.attention_pools(cache, index)? {
            let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
            let [keys, values] = pool.take()?;
            let keys = write(keys, &group.slots, &kv_format::store(format, &k)?)?;
            let values = write(values, &group.slots, &kv_format::store(format, &v)?)?;
            pool.put([keys.clone(), values.clone()]);
            for gather in &group.gathers {
                attended.push(self.attend(&q, (&keys, &values), format, gather)?);
            }
            order = order.or(group.order.as_ref());
        }
        let attended = match attended.as_slice() {
            [one] => one.clone(),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0)?,
        };
        match order {
            Some(order) => attended.take(order, 0),
            None => Ok(attended),
        }
    }

    /// The rows of one gather, `[n, heads · head_dim]`.
    fn attend(
        &self,
        q: &Array,
        (keys, values): (&Array, &Array),
        format: KvFormat,
        gather: &Gather,
    ) -> mlx::Result<Array> {
        let (heads, dim) = (self.spec.heads as i32, self.spec.head_dim as i32);
        let (q, count) = match &gather.rows {
            Rows::Singles(rows) => {
                (q.take(rows, 0)?.expand_dims(&[2])?, rows.shape().first().copied().unwrap_or(0))
            }
            Rows::Chunk { first, len } => {
                let rows = q.slice(&[*first, 0, 0], &[first + len, heads, dim])?;
                (rows.transpose(&[1, 0, 2])?.expand_dims(&[0])?, *len)
            }
        };
        let in_order = |pool: &Array| -> mlx::Result<Array> {
            let found = pool.take(&gather.tables, 0)?;
            let [segments, blocks, size, kv_heads, stored] = found.dims()?;
            let rows = found.reshape(&[segments, blocks * size, kv_heads, stored])?;
            let rows = rows.slice(&[0, 0, 0, 0], &[segments, gather.keys, kv_heads, stored])?;
            let rows = match (&gather.rows, &gather.mask) {
                // Past the end of a sequence its last block holds stale values, and a weight of zero does not
                // take away a NaN.
                (Rows::Singles(_), Some(mask)) => {
                    let seen = mask.reshape(&[segments, gather.keys, 1, 1])?;
                    mlx::where_(&seen, &rows, &Array::scalar(0.0, rows.dtype()?)?)?
                }
                _ => rows,
            };
            kv_format::load(format, &rows, self.spec.head_dim, q.dtype()?)?.transpose(&[0, 2, 1, 3])
        };
        let (k, v) = (in_order(keys)?, in_order(values)?);
        let y = fast::sdpa(&q, &k, &v, self.spec.scale, gather.mask(), None)?;
        y.transpose(&[0, 2, 1, 3])?.reshape(&[count, heads * dim])
    }
}

/// Writes rows `[T, kv_heads, _]`, as they are stored, to flat slots of a pool, in place.
fn write(pool: Array, slots: &Array, rows: &Array) -> mlx::Result<Array> {
    let shape = pool.shape().to_vec();
    let [blocks, size, kv_heads, dim] = pool.dims()?;
    let flat = pool.reshape(&[blocks * size, kv_heads, dim])?;
    drop(pool);
    flat.scatter_rows(slots, rows)?.reshape(&shape)
}

/// A query projection that yields a query and a gate for each head in turn, apart.
fn halves(both: Linear, spec: &Attention) -> mlx::Result<(Linear, Option<Linear>)> {
    let dim = spec.head_dim;
    let half = |which: usize| -> mlx::Result<Array> {
        let rows = (0..spec.heads * dim).map(|row| (row / dim * 2 + which) * dim + row % dim);
        let rows: Vec<i32> = rows.map(|row| row as i32).collect();
        Array::from_slice(&rows, &[rows.len() as i32])
    };
    Ok((both.clone().take_rows(&half(0)?)?, Some(both.take_rows(&half(1)?)?)))
}
