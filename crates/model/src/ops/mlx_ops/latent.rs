//! Latent attention in MLX's operations: rows that decode attend to the latents themselves, chunks to the keys and values
//! that come from them.
//!
//! Source: arXiv 2405.04434 §2.1.2.

use mlx::{Array, fast};
use omnibus_kv::KvFormat;

use super::attention::write;
use crate::forward::{AttentionReads, Gather, Rows};
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::ops::{LatentCall, LayerContext, Weight};

/// How a backend computes products with the weights of each head.
#[derive(Clone, Copy)]
pub(in crate::ops) struct HeadProducts {
    /// See [`Weight::of_heads`].
    pub(in crate::ops) of_heads: fn(&Weight, &Array) -> mlx::Result<Array>,
    /// See [`Weight::of_heads_back`].
    pub(in crate::ops) of_heads_back: fn(&Weight, &Array) -> mlx::Result<Array>,
}

impl HeadProducts {
    /// By MLX's operations.
    pub(in crate::ops) const MLX: Self =
        Self { of_heads: Weight::of_heads, of_heads_back: Weight::of_heads_back };
}

/// `[T, heads · v_head_dim]`, see [`Ops::attend_latent`](crate::ops::Ops::attend_latent).
/// `products`: those with the weights of each head.
pub(in crate::ops) fn latent(mut call: LatentCall, products: HeadProducts) -> mlx::Result<Array> {
    let LayerContext { ctx, index, cache } = &mut call.layer;
    let (ctx, index) = (*ctx, *index);
    let (mut attended, mut order) = (Vec::new(), None);
    let pools = ctx.attention_pools(cache, index)?;
    let mut gathered = Vec::new();
    for (at, format, metadata) in pools {
        let AttentionReads::Gather(metadata) = &metadata.reads else { return Err(poisoned()) };
        let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
        let [latents, keys] = pool.take()?;
        let latents = write(latents, &metadata.slots, &kv_format::store(format, call.latent)?)?;
        let keys = write(keys, &metadata.slots, &kv_format::store(format, call.key)?)?;
        pool.put([latents.clone(), keys.clone()]);
        gathered.push((latents, keys, format, metadata));
    }
    for (pool, (latents, keys, format, metadata)) in gathered.iter().enumerate() {
        for gather in &metadata.gathers {
            let chosen = match call.filter {
                Some(filter) => {
                    let positions = gather.positions()?;
                    Some(filter.filtered(pool, gather, &positions, &gather.visible(&positions)?)?)
                }
                None => None,
            };
            let mask = chosen.as_ref().map_or(gather.mask(), fast::Mask::Array);
            attended.push(attend(&call, products, [latents, keys], *format, (gather, mask))?);
        }
        order = order.or(metadata.order.as_ref());
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

/// The rows of one gather, `[n, heads · v_head_dim]`.
fn attend(
    call: &LatentCall,
    products: HeadProducts,
    pools: [&Array; 2],
    format: KvFormat,
    (gather, mask): (&Gather, fast::Mask<'_>),
) -> mlx::Result<Array> {
    let spec = call.spec;
    let dtype = call.latent.dtype()?;
    let [latents, keys] = pools;
    let latents = in_order(latents, spec.latent_dim, format, gather)?.astype(dtype)?;
    let keys = in_order(keys, spec.rope_dim, format, gather)?.astype(dtype)?;
    let [q_nope, q_rope] = call.queries;
    match &gather.rows {
        Rows::Singles(rows) => {
            let of = |queries: &Array| gather.rows.of_heads(queries);
            // [n, heads, 1, latent_dim]
            let absorbed = (products.of_heads)(call.embed_q, &of(q_nope)?)?;
            let queries = mlx::concatenate(&[&absorbed, &of(q_rope)?], -1)?;
            let keys = mlx::concatenate(&[&latents, &keys], -1)?;
            let y = fast::sdpa(&queries, &keys, &latents, spec.scale, mask, None)?;
            (products.of_heads)(call.unembed_out, &y)?.reshape(&[rows.dim(0)?, -1])
        }
        Rows::Chunk { len, .. } => {
            let of = |queries: &Array| gather.rows.of_heads(queries);
            let queries = mlx::concatenate(&[&of(q_nope)?, &of(q_rope)?], -1)?;
            let [count, _, tokens, rope] = keys.dims()?;
            let keys = keys.broadcast_to(&[count, spec.heads as i32, tokens, rope])?;
            let keys = mlx::concatenate(&[&(products.of_heads_back)(call.embed_q, &latents)?, &keys], -1)?;
            let values = (products.of_heads)(call.unembed_out, &latents)?;
            let y = fast::sdpa(&queries, &keys, &values, spec.scale, mask, None)?;
            y.transpose(&[0, 2, 1, 3])?.reshape(&[*len, -1])
        }
    }
}

/// The cached rows of a gather's sequences, `[n, 1, keys, width]`.
fn in_order(pool: &Array, width: usize, format: KvFormat, gather: &Gather) -> mlx::Result<Array> {
    let rows = super::attention::gathered(pool, gather)?;
    kv_format::load(format, &rows, width, mlx::Dtype::F32)?.transpose(&[0, 2, 1, 3])
}
