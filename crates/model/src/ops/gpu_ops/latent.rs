//! Latent attention of one layer: rows that decode by our kernels, chunks by MLX's operations over latents that a kernel
//! gathers: MLX's own gather would not wait for the kernel that writes the pools.

use mlx::gpu::{
    FewRowsWeight, LatentArrays, LatentRotation, LatentShape, LatentWrite, MatrixUnit, PagedLatents,
    head_product, written_by,
};
use mlx::{Array, Dtype, QuantMode};
use omnibus_kv::KvFormat;

use super::linear;
use crate::forward::{AttentionReads, Gather, Items};
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::mixers::LatentAttention;
use crate::ops::mlx_ops::{HeadProducts, LatentReader};
use crate::ops::{LatentCall, Weight};

/// What multiplies rows that decode with the weights of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Products {
    Kernel,
    Mlx,
}

/// With packed weights of heads unpacked where there are many rows.
pub(super) const PRODUCTS: HeadProducts = HeadProducts { of_heads, of_heads_back };

fn of_heads(weight: &Weight, x: &Array) -> mlx::Result<Array> {
    unpacked(weight, x)?.as_ref().unwrap_or(weight).of_heads(x)
}

fn of_heads_back(weight: &Weight, x: &Array) -> mlx::Result<Array> {
    unpacked(weight, x)?.as_ref().unwrap_or(weight).of_heads_back(x)
}

fn unpacked(weight: &Weight, x: &Array) -> mlx::Result<Option<Weight>> {
    match weight {
        Weight::Packed(packed)
            if packed.mode == QuantMode::Affine && x.dim(-2)? as usize >= linear::UNPACK_ROWS =>
        {
            Ok(Some(Weight::Dense(linear::unpacked(packed, x.dtype()?)?)))
        }
        Weight::Packed(_) | Weight::Dense(_) => Ok(None),
    }
}

/// The kernels of a layer with activations of `dtype`; `None` for packed latents, which have none.
pub(crate) fn paged(
    spec: &LatentAttention,
    dtype: Dtype,
    format: KvFormat,
    block_size: i32,
) -> Option<PagedLatents> {
    let KvFormat::Float(_) = format else { return None };
    let pool = kv_format::dtype_of(format);
    let unit = MatrixUnit::of_device();
    Some(PagedLatents { dtype, pool, shape: shape(spec), block_size, scale: spec.scale, unit })
}

fn shape(spec: &LatentAttention) -> LatentShape {
    LatentShape {
        heads: spec.heads as i32,
        latent_dim: spec.latent_dim as i32,
        rope_dim: spec.rope_dim as i32,
    }
}

/// `[T, heads · v_head_dim]`, see [`Ops::attend_latent`](crate::ops::Ops::attend_latent).
pub(super) fn attend(call: &mut LatentCall, products: Products) -> mlx::Result<Array> {
    let spec = call.spec;
    let (ctx, index, dtype) = (call.layer.ctx, call.layer.index, call.queries.dtype()?);
    let block_size = call.layer.cache.block_size as i32;
    let pools = ctx.attention_pools(call.layer.cache, index)?;
    let [(at, format, metadata)] = pools.as_slice() else {
        return Err(mlx::Error::new("latents in one pool"));
    };
    let AttentionReads::Items(items) = &metadata.reads else {
        return Err(mlx::Error::new("latents that are read by items"));
    };
    let queries = call.queries.reshape(&[items.rows, -1])?;
    let (turned, counter, pools) = write(call, &queries, (*at, *format), items)?;
    let [latents, keys] = &pools;
    let kernels = paged(spec, dtype, *format, block_size);
    let kernels = kernels.ok_or_else(|| mlx::Error::new("latents that have a kernel"))?;
    let decoded = match &items.decode {
        Some(decode) => {
            let absorbed = with_head_weights(call.weights.embed_q, &queries, products)?;
            let arrays = LatentArrays {
                queries: &absorbed,
                turned: &turned,
                latents,
                keys,
                tables: &items.tables,
                counter: &counter,
            };
            let read = kernels.run(&arrays, (&decode.array, decode.count), items.longest)?;
            Some(with_head_weights(call.weights.unembed_out, &read, products)?)
        }
        None => None,
    };
    let rows = [items.rows, spec.heads as i32];
    let nope = || call.queries.slice(&[0, 0, 0], &[rows[0], rows[1], spec.nope_dim as i32]);
    let chunks = match items.gathers.as_slice() {
        [] => Vec::new(),
        gathers => {
            let (nope, rope) = (nope()?, turned.reshape(&[rows[0], rows[1], -1])?);
            let (queries, weights) = ([&nope, &rope], call.weights);
            let reader = LatentReader { spec, queries, weights, products: PRODUCTS };
            let attend = |gather: &Gather| {
                let plan = kernels.gather(gather.tables.dim(-1)?);
                let made = plan.call(&[latents, keys, &gather.tables, &turned])?;
                let [latents, keys] = made.as_slice() else {
                    return Err(mlx::Error::new("latents and keys"));
                };
                let in_order =
                    |all: &Array| all.slice(&[0, 0], &[gather.keys, all.dim(-1)?])?.expand_dims(&[0, 1]);
                reader.attend([&in_order(latents)?, &in_order(keys)?], (&gather.rows, gather.mask()))
            };
            gathers.iter().map(attend).collect::<mlx::Result<_>>()?
        }
    };
    items.merged(decoded, chunks)
}

/// Writes latents and keys to pool `at`: the turned parts of queries `[T, heads · rope_dim]`, the attention's counter, and
/// the pools' arrays as they are then.
fn write(
    call: &mut LatentCall,
    queries: &Array,
    (at, format): (usize, KvFormat),
    items: &Items,
) -> mlx::Result<(Array, Array, [Array; 2])> {
    let (weight, eps) = (call.latent_norm, call.spec.norm_eps);
    let [factor, _] = call.spec.latent_scales;
    let rotation = call
        .rotation
        .map(|rotation| LatentRotation { order: rotation.rope.pairs, magnitude: rotation.magnitude });
    let write = LatentWrite {
        dtype: queries.dtype()?,
        pool: kv_format::dtype_of(format),
        shape: shape(call.spec),
        nope_dim: call.spec.nope_dim as i32,
        rotation,
        eps,
        factor,
    };
    let plan = write.plan(items.rows).ok_or_else(|| mlx::Error::new("latents that have a kernel"))?;
    // An array that is not read must exist.
    let radians = call.rotation.and_then(|rotation| rotation.radians.as_deref()).unwrap_or(weight);
    let pool = call.layer.cache.pools.get_mut(at).ok_or_else(poisoned)?;
    let [latents, keys] = pool.take()?;
    let inputs = [queries, call.projected, weight, radians, &items.positions, &items.slots, &latents, &keys];
    let made: Result<[Array; 2], _> = plan.call(&inputs)?.try_into();
    let [turned, counter] = made.map_err(|_| mlx::Error::new("queries and a counter"))?;
    let written: Result<[Array; 2], _> = written_by(&[&latents, &keys], &turned)?.try_into();
    let pools = written.map_err(|_| mlx::Error::new("latents and keys"))?;
    pool.put(pools.clone());
    Ok((turned, counter, pools))
}

/// The products of each head of `x`, `[T, heads · pitch]`, whose first elements it reads, with its weight `[heads, out, in]`:
/// `[T, heads · out]`.
fn with_head_weights(weight: &Weight, x: &Array, products: Products) -> mlx::Result<Array> {
    let rows = x.dim(0)?;
    if products == Products::Kernel {
        let stored = match weight {
            Weight::Dense(dense) => FewRowsWeight::Dense(dense),
            Weight::Packed(packed) => FewRowsWeight::Packed(packed),
        };
        if let Some(product) = head_product(x, stored)? {
            return product.reshape(&[rows, -1]);
        }
    }
    let (heads, inputs) = (weight.matrices()?, weight.inputs()?);
    let by_head = x.reshape(&[rows, heads, -1])?.slice(&[0, 0, 0], &[rows, heads, inputs])?;
    let product = of_heads(weight, &by_head.transpose(&[1, 0, 2])?)?;
    product.transpose(&[1, 0, 2])?.reshape(&[rows, -1])
}
