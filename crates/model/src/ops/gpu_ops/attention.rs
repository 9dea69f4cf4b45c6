//! Attention of one layer over its pools, by our kernels.

use mlx::gpu::{
    HeadShape, MatrixUnit, Operand, PagedArrays, PagedAttention, PoolFormat, QueryTemperature, Rotary,
    RotaryAxes, RotaryNorm, SinkLogits, written_by,
};
use mlx::{Array, Dtype};
use omnibus_kv::KvFormat;

use super::operand_of;
use crate::forward::{AttentionReads, Items};
use crate::kv_cache::poisoned;
use crate::mixers::{Attention, AttentionSpan, NormAt};
use crate::ops::{AttentionCall, GpuFusions};
use crate::{RotaryPairing, kv_format};

/// The kernels of a layer with activations of `dtype`; `None` for values of another width than keys, which have none.
pub(crate) fn paged(
    spec: &Attention,
    dtype: Dtype,
    format: KvFormat,
    (block_size, unit): (i32, MatrixUnit),
) -> Option<PagedAttention> {
    let (window, sink_tokens) = match spec.span {
        AttentionSpan::Full => (None, 0),
        AttentionSpan::Window(tokens) | AttentionSpan::Chunk(tokens) => (Some(tokens as i32), 0),
        AttentionSpan::Sinks { tokens, sink_tokens } => (Some(tokens as i32), sink_tokens as i32),
    };
    let sink_logits = if spec.sink_logits { SinkLogits::PerHead } else { SinkLogits::Absent };
    (spec.v_head_dim == spec.head_dim).then(|| PagedAttention {
        dtype,
        pool: pool(format),
        shape: shape(spec),
        block_size,
        window,
        sink_tokens,
        scale: spec.scale,
        softcap: spec.softcap,
        sink_logits,
        unit,
    })
}

fn pool(format: KvFormat) -> PoolFormat {
    match format {
        KvFormat::Float(_) => PoolFormat::Float(kv_format::dtype_of(format)),
        KvFormat::Packed { bits, group_size } => {
            PoolFormat::Packed { bits: bits as i32, group: group_size as i32 }
        }
    }
}

fn shape(spec: &Attention) -> HeadShape {
    HeadShape { heads: spec.heads as i32, kv_heads: spec.kv_heads as i32, head_dim: spec.head_dim as i32 }
}

/// `[T, heads · head_dim]`, see [`Ops::attend`](crate::ops::Ops::attend).
/// `unit`: multiplies matrices of prompt chunks.
pub(super) fn attend(call: &mut AttentionCall, unit: MatrixUnit) -> mlx::Result<Array> {
    let (ctx, index) = (call.layer.ctx, call.layer.index);
    let mut attended: Option<Array> = None;
    for (at, format, metadata) in ctx.attention_pools(call.layer.cache, index)? {
        let AttentionReads::Items(items) = &metadata.reads else { return Err(poisoned()) };
        // A row that reads nothing of a pool has zeros there.
        let part = attend_in(call, (at, format), items, unit)?;
        attended = Some(attended.map_or(part.clone(), |others| others + part));
    }
    attended.ok_or_else(poisoned)
}

/// The rows that read one pool. A layer that reads another's keys and values comes after their write: its queries are
/// computed from a hidden state that the other layer's attention is part of.
fn attend_in(
    call: &mut AttentionCall,
    (at, format): (usize, KvFormat),
    items: &Items,
    unit: MatrixUnit,
) -> mlx::Result<Array> {
    let dtype = call.qkv.dtype()?;
    let block_size = call.layer.cache.block_size as i32;
    let (rows, operand) = operand_of(call.qkv);
    let rotary = Rotary { operand, ..rotary(call, dtype, pool(format)) };
    let plan = rotary.plan(items.rows).ok_or_else(|| mlx::Error::new("a rotation that has a kernel"))?;
    let norms = call.head_norms.map(|norms| norms.map(|norm| norm.weight));
    // Arrays that are not read must exist.
    let [q_norm, k_norm] = norms.unwrap_or([&rows; 2]);
    let radians = call.rotation.and_then(|rotation| rotation.radians.as_deref()).unwrap_or(&rows);
    let (axes, positions) = match call.rotation.and_then(|rotation| rotation.axes.as_deref()) {
        Some(axes) => (axes, &items.axes),
        None => (&items.slots, &items.positions),
    };
    let pool = call.layer.cache.pools.get_mut(at).ok_or_else(poisoned)?;
    let [keys, values] = pool.take()?;
    let inputs = [&rows, q_norm, k_norm, radians, axes, positions, &items.slots, &keys, &values];
    let made: Result<[Array; 2], _> = plan.call(&inputs)?.try_into();
    let [queries, counter] = made.map_err(|_| mlx::Error::new("queries and a counter"))?;
    let written: Result<[Array; 2], _> = written_by(&[&keys, &values], &queries)?.try_into();
    let [keys, values] = written.map_err(|_| mlx::Error::new("keys and values"))?;
    pool.put([keys.clone(), values.clone()]);
    let arrays = PagedArrays {
        queries: &queries,
        keys: &keys,
        values: &values,
        tables: &items.tables,
        counter: &counter,
        sinks: call.sinks.unwrap_or(&queries),
    };
    let attention = paged(call.spec, dtype, format, (block_size, unit))
        .ok_or_else(|| mlx::Error::new("an attention layer that has kernels"))?;
    let decoded = match &items.decode {
        Some(decode) => Some(attention.run_decode(&arrays, (&decode.array, decode.count), items.longest)?),
        None => None,
    };
    let dialect = mlx::gpu::Dialect::of(mlx::device::backend()).ok_or_else(poisoned)?;
    match (items.chunks(attention.chunk_rows(dialect))?, decoded) {
        (Some(chunks), decoded) => {
            let other = decoded.as_ref().unwrap_or(&queries);
            attention.run_chunks(&arrays, (&chunks.array, chunks.count), other)
        }
        (None, Some(decoded)) => Ok(decoded),
        (None, None) => Err(mlx::Error::new("a pass without rows")),
    }
}

fn rotary(call: &AttentionCall, dtype: Dtype, pool: PoolFormat) -> Rotary {
    let GpuFusions { clip, norm_at, temperature } = call.gpu_fusions;
    let norm = match (call.head_norms, norm_at) {
        (Some([queries, _]), NormAt::BeforeRotation) => RotaryNorm::Rms(queries.eps),
        (Some([queries, _]), NormAt::AfterRotation) => RotaryNorm::Late(queries.eps),
        (None, _) => RotaryNorm::Absent,
    };
    let value_norm = call.value_norm.map_or(RotaryNorm::Absent, RotaryNorm::Rms);
    let absent = Rotary {
        dtype,
        pool,
        shape: shape(call.spec),
        projected: call.projected,
        dims: 0,
        order: RotaryPairing::Halves,
        magnitude: 1.0,
        axes: RotaryAxes::One,
        clip,
        norm,
        value_norm,
        temperature: temperature.map(|temperature| QueryTemperature {
            beta: temperature.beta,
            period: temperature.period as i32,
            shift: temperature.shift as i32,
        }),
        operand: Operand::Whole,
    };
    let Some(rotation) = call.rotation else { return absent };
    Rotary {
        dims: rotation.rope.dims as i32,
        order: rotation.rope.pairs,
        magnitude: rotation.magnitude,
        axes: if rotation.axes.is_some() { RotaryAxes::Three } else { RotaryAxes::One },
        ..absent
    }
}
