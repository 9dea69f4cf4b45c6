//! Norms, rotation and temperature of queries and keys in MLX's operations, for what attention kernels do not have.

use mlx::{Array, Dtype};

use super::normed::QkNormBlock;
use super::{Attention, NormAt, Temperature};
use crate::forward::ForwardContext;
use crate::ops::Rotation;

impl Attention {
    /// True where attention kernels norm queries and keys themselves, if they are normed at all.
    pub(super) fn norms_in_kernels(&self) -> bool {
        self.rotates_in_kernels() && self.qk_norm.is_none_or(|norm| norm.in_kernels().is_some())
    }

    /// True where attention kernels rotate queries and keys themselves: nothing comes between rotation and scores.
    pub(super) fn rotates_in_kernels(&self) -> bool {
        self.temperature.is_none() && self.qk_norm.is_none_or(|norm| norm.at == NormAt::BeforeRotation)
    }
}

impl Temperature {
    /// Queries `[T, heads, _]` of the pass, each at its position.
    pub(in crate::mixers) fn apply(self, queries: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let Self { beta, period, shift } = self;
        let positions = ctx.positions()?.astype(Dtype::F32)? + shift as f32;
        let periods = (positions / period.max(1) as f32).floor()?;
        let factors = (periods.log1p()? * beta + 1.0).expand_dims(&[1, 2])?;
        Ok(queries * factors.astype(queries.dtype()?)?)
    }
}

/// Queries, keys and values of a projection, with queries and keys normed, and rotated if `rotation` is given.
pub(super) fn prepared(
    spec: &Attention,
    (norm, rotation): (Option<&QkNormBlock>, Option<&Rotation>),
    qkv: &Array,
    ctx: &ForwardContext,
) -> mlx::Result<Array> {
    let [rows, _] = qkv.dims()?;
    let (heads, kv_heads, dim) = (spec.heads as i32, spec.kv_heads as i32, spec.head_dim as i32);
    let parts = qkv.split(&[heads * dim, (heads + kv_heads) * dim], -1)?;
    let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
    let mut pair = [q.reshape(&[rows, heads, dim])?, k.reshape(&[rows, kv_heads, dim])?];
    if let Some(norm) = norm {
        pair = norm.apply(NormAt::BeforeRotation, pair)?;
    }
    if let Some(rotation) = rotation {
        let positions = ctx.positions()?;
        let [q, k] = &pair;
        pair = [rotation.apply(q, positions, &ctx.lengths)?, rotation.apply(k, positions, &ctx.lengths)?];
    }
    if let Some(norm) = norm {
        pair = norm.apply(NormAt::AfterRotation, pair)?;
    }
    let [q, k] = pair;
    let q = match spec.temperature {
        Some(temperature) => temperature.apply(&q, ctx)?,
        None => q,
    };
    mlx::concatenate(&[&q.reshape(&[rows, heads * dim])?, &k.reshape(&[rows, kv_heads * dim])?, v], -1)
}
