//! Latent attention by our CPU kernel: all rows attend to the latents themselves, so that a row's bits do not depend on the
//! chunk that it is computed in.

use mlx::{Array, cpu};

use super::{heads, rope_of};
use crate::forward::AttentionReads;
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::ops::{LatentCall, LatentWeights};

/// `[T, heads · v_head_dim]`, see [`Ops::attend_latent`](crate::ops::Ops::attend_latent).
pub(super) fn paged(call: &mut LatentCall) -> mlx::Result<Array> {
    let (spec, ctx) = (call.spec, call.layer.ctx);
    let LatentWeights { embed_q, unembed_out } = call.weights;
    let cache = &mut *call.layer.cache;
    let [count, heads, width] = call.queries.dims()?;
    let nope = call.queries.slice(&[0, 0, 0], &[count, heads, width - spec.rope_dim as i32])?;
    let absorbed = heads::of_rows(embed_q, &nope)?;
    let [latent_scale, _] = spec.latent_scales;
    let mut attended: Option<Array> = None;
    for (at, format, metadata) in ctx.attention_pools(cache, call.layer.index)? {
        // A row that reads nothing of a pool has zeros there.
        let AttentionReads::Segments(metadata) = &metadata.reads else { return Err(poisoned()) };
        let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
        let [latent_pool, key_pool] = pool.take()?;
        let cpu::LatentOutput { out, latent_pool, key_pool } = cpu::PagedLatentAttention {
            queries: call.queries,
            absorbed: &absorbed,
            rows: call.projected,
            norm: cpu::HeadNorm { weight: call.latent_norm, eps: spec.norm_eps },
            latent_scale,
            positions: ctx.positions()?,
            rope: call.rotation.and_then(rope_of),
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
    heads::of_rows(unembed_out, &attended)?.reshape(&[count, -1])
}
