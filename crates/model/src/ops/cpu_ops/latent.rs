//! Latent attention by our CPU kernel: all rows attend to the latents themselves, so that a row's bits do not depend on the
//! chunk that it is computed in.

use mlx::{Array, cpu};

use super::{head_norm, heads, rope_of};
use crate::forward::AttentionReads;
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::ops::LatentRows;

/// `[T, heads · v_head_dim]`, see [`Ops::attend_latent_rows`](crate::ops::Ops::attend_latent_rows).
pub(super) fn paged(rows: LatentRows) -> mlx::Result<Array> {
    let (spec, ctx) = (rows.spec, rows.layer.ctx);
    let cache = &mut *rows.layer.cache;
    let [count, heads, width] = rows.queries.dims()?;
    let nope = rows.queries.slice(&[0, 0, 0], &[count, heads, width - spec.rope_dim as i32])?;
    let absorbed = heads::of_rows(rows.embed_q, &nope)?;
    let [latent_scale, _] = spec.latent_scales;
    let mut attended: Option<Array> = None;
    for (at, format, metadata) in ctx.attention_pools(cache, rows.layer.index)? {
        // A row that reads nothing of a pool has zeros there.
        let AttentionReads::Segments(metadata) = &metadata.reads else { return Err(poisoned()) };
        let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
        let [latent_pool, key_pool] = pool.take()?;
        let cpu::LatentOutput { out, latent_pool, key_pool } = cpu::PagedLatentAttention {
            queries: rows.queries,
            absorbed: &absorbed,
            rows: rows.rows,
            norm: head_norm(rows.norm),
            latent_scale,
            positions: ctx.positions()?,
            rope: rows.rotation.and_then(rope_of),
            scale: spec.scale,
            latent_pool,
            key_pool,
            packing: kv_format::packing_of(format),
            metadata: cpu::AttentionMetadata {
                slots: &metadata.slots,
                segments: &metadata.segments,
                tables: &metadata.tables,
                ends: None,
            },
        }
        .run()?;
        pool.put([latent_pool, key_pool]);
        attended = Some(attended.map_or(out.clone(), |others| others + out));
    }
    let attended = attended.ok_or_else(poisoned)?;
    heads::of_rows(rows.unembed_out, &attended)?.reshape(&[count, -1])
}
