//! Latent attention in MLX's operations: rows that decode attend to the latents themselves, chunks to the keys and values
//! that come from them.
//!
//! Source: arXiv 2405.04434 §2.1.2.

use mlx::{Array, fast};
use omnibus_kv::KvFormat;

use super::attention::in_batch_order;
use super::attention::write;
use crate::forward::{AttentionReads, Gather, Rows};
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::mixers::LatentAttention;
use crate::ops::{LatentCall, LatentWeights, LayerContext, Weight};

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

/// What latent attention reads and writes, normed and rotated.
struct LatentRows {
    /// Without a position, `[T, heads, nope_dim]`, and rotated, `[T, heads, rope_dim]`.
    queries: [Array; 2],
    /// `[T, 1, latent_dim]`
    latent: Array,
    /// `[T, 1, rope_dim]`, rotated.
    key: Array,
}

impl LatentRows {
    fn new(call: &LatentCall) -> mlx::Result<Self> {
        let rotated = |x: &Array| match call.rotation {
            Some(rotation) => rotation.apply(x, call.layer.ctx.positions()?, &call.layer.ctx.lengths),
            None => Ok(x.clone()),
        };
        let two = |x: &Array, first: usize| -> mlx::Result<[Array; 2]> {
            x.split(&[first as i32], -1)?.try_into().map_err(|_| mlx::Error::new("two parts"))
        };
        let [nope, rope] = two(call.queries, call.spec.nope_dim)?;
        let [latent, key] = two(call.projected, call.spec.latent_dim)?;
        let [scale, _] = call.spec.latent_scales;
        let latent = fast::rms_norm(&latent, Some(call.latent_norm), call.spec.norm_eps)?;
        let latent = if scale == 1.0 { latent } else { latent * scale };
        Ok(Self {
            queries: [nope, rotated(&rope)?],
            latent: latent.expand_dims(&[1])?,
            key: rotated(&key.expand_dims(&[1])?)?,
        })
    }
}

/// `[T, heads · v_head_dim]`, see [`Ops::attend_latent`](crate::ops::Ops::attend_latent).
/// `products`: those with the weights of each head.
pub(in crate::ops) fn latent(mut call: LatentCall, products: HeadProducts) -> mlx::Result<Array> {
    let rows = LatentRows::new(&call)?;
    let LayerContext { ctx, index, cache } = &mut call.layer;
    let (ctx, index) = (*ctx, *index);
    let (mut attended, mut order) = (Vec::new(), None);
    let pools = ctx.attention_pools(cache, index)?;
    let mut gathered = Vec::new();
    for (at, format, metadata) in pools {
        let AttentionReads::Gather(metadata) = &metadata.reads else { return Err(poisoned()) };
        let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
        let [latents, keys] = pool.take()?;
        let latents = write(latents, &metadata.slots, &kv_format::store(format, &rows.latent)?)?;
        let keys = write(keys, &metadata.slots, &kv_format::store(format, &rows.key)?)?;
        pool.put([latents.clone(), keys.clone()]);
        gathered.push((latents, keys, format, metadata));
    }
    let [nope, rope] = &rows.queries;
    let reader = LatentReader { spec: call.spec, queries: [nope, rope], weights: call.weights, products };
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
            let dtype = nope.dtype()?;
            let latents = in_order(latents, call.spec.latent_dim, *format, gather)?.astype(dtype)?;
            let keys = in_order(keys, call.spec.rope_dim, *format, gather)?.astype(dtype)?;
            attended.push(reader.attend([&latents, &keys], (&gather.rows, mask))?);
        }
        order = order.or(metadata.order.as_ref());
    }
    in_batch_order(&attended, order)
}

/// What the rows of a gather need to read latents.
pub(in crate::ops) struct LatentReader<'a> {
    pub(in crate::ops) spec: &'a LatentAttention,
    /// Without a position, `[T, heads, nope_dim]`, and rotated, `[T, heads, rope_dim]`.
    pub(in crate::ops) queries: [&'a Array; 2],
    pub(in crate::ops) weights: LatentWeights<'a>,
    pub(in crate::ops) products: HeadProducts,
}

impl LatentReader<'_> {
    /// The rows of one gather, `[n, heads · v_head_dim]`, to its latents `[n, 1, keys, latent_dim]` and keys `[n, 1, keys,
    /// rope_dim]`.
    pub(in crate::ops) fn attend(
        &self,
        [latents, keys]: [&Array; 2],
        (rows, mask): (&Rows, fast::Mask<'_>),
    ) -> mlx::Result<Array> {
        let [q_nope, q_rope] = self.queries;
        let spec = self.spec;
        let LatentWeights { embed_q, unembed_out } = self.weights;
        let HeadProducts { of_heads, of_heads_back } = self.products;
        let of = |queries: &Array| rows.of_heads(queries);
        match rows {
            Rows::Singles(rows) => {
                // [n, heads, 1, latent_dim]
                let absorbed = of_heads(embed_q, &of(q_nope)?)?;
                let queries = mlx::concatenate(&[&absorbed, &of(q_rope)?], -1)?;
                let keys = mlx::concatenate(&[latents, keys], -1)?;
                let y = fast::sdpa(&queries, &keys, latents, spec.scale, mask, None)?;
                of_heads(unembed_out, &y)?.reshape(&[rows.dim(0)?, -1])
            }
            Rows::Chunk { len, .. } => {
                let queries = mlx::concatenate(&[&of(q_nope)?, &of(q_rope)?], -1)?;
                let [count, _, tokens, rope] = keys.dims()?;
                let keys = keys.broadcast_to(&[count, spec.heads as i32, tokens, rope])?;
                let keys = mlx::concatenate(&[&of_heads_back(embed_q, latents)?, &keys], -1)?;
                let values = of_heads(unembed_out, latents)?;
                let y = fast::sdpa(&queries, &keys, &values, spec.scale, mask, None)?;
                y.transpose(&[0, 2, 1, 3])?.reshape(&[*len, -1])
            }
        }
    }
}

/// The cached rows of a gather's sequences, `[n, 1, keys, width]`.
fn in_order(pool: &Array, width: usize, format: KvFormat, gather: &Gather) -> mlx::Result<Array> {
    let rows = super::attention::gathered(pool, gather)?;
    kv_format::load(format, &rows, width, mlx::Dtype::F32)?.transpose(&[0, 2, 1, 3])
}
