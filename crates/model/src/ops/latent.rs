//! Latent attention of one layer, as it is projected and as MLX's operations take it.

use mlx::Array;

use super::{HeadNorm, KeyFilter, LayerContext, Rotation, Weight};
use crate::LatentAttention;
use crate::forward::ForwardContext;

/// Latent attention of one layer over its pools, as projected.
pub(crate) struct LatentRows<'a> {
    pub(crate) spec: &'a LatentAttention,
    /// `[T, heads, nope_dim + rope_dim]`, of which the last part rotates.
    pub(crate) queries: &'a Array,
    /// Latents and keys, `[T, latent_dim + rope_dim]`.
    pub(crate) rows: &'a Array,
    /// Of latents.
    pub(crate) norm: HeadNorm<'a>,
    /// Of queries and keys.
    pub(crate) rotation: Option<&'a Rotation>,
    /// From queries to latents.
    pub(crate) embed_q: &'a Weight,
    /// From latents to values.
    pub(crate) unembed_out: &'a Weight,
    /// Which of the visible keys a row reads.
    pub(crate) filter: Option<&'a dyn KeyFilter>,
    pub(crate) layer: LayerContext<'a>,
}

/// Latent attention of one layer over its pools.
pub(crate) struct LatentCall<'a> {
    pub(crate) spec: &'a LatentAttention,
    /// Without a position, `[T, heads, nope_dim]`, and rotated, `[T, heads, rope_dim]`.
    pub(crate) queries: [&'a Array; 2],
    /// `[T, 1, latent_dim]`
    pub(crate) latent: &'a Array,
    /// `[T, 1, rope_dim]`, rotated.
    pub(crate) key: &'a Array,
    /// From queries to latents.
    pub(crate) embed_q: &'a Weight,
    /// From latents to values.
    pub(crate) unembed_out: &'a Weight,
    /// Which of the visible keys a row reads.
    pub(crate) filter: Option<&'a dyn KeyFilter>,
    pub(crate) layer: LayerContext<'a>,
}

/// Normed and rotated, as [`LatentCall`] has them.
pub(crate) struct LatentParts {
    queries: [Array; 2],
    latent: Array,
    key: Array,
}

impl<'a> LatentRows<'a> {
    /// `norm`: computes the norm of latents.
    pub(crate) fn parts(
        &self,
        norm: impl Fn(&Array, HeadNorm) -> mlx::Result<Array>,
    ) -> mlx::Result<LatentParts> {
        let ctx = self.layer.ctx;
        let parts = self.queries.split(&[self.spec.nope_dim as i32], -1)?;
        let [nope, rope] = parts.as_slice() else { return Err(mlx::Error::new("two parts of queries")) };
        let parts = self.rows.split(&[self.spec.latent_dim as i32], -1)?;
        let [latent, key] = parts.as_slice() else { return Err(mlx::Error::new("a latent and a key")) };
        let [scale, _] = self.spec.latent_scales;
        let latent = norm(&latent.contiguous()?, self.norm)?;
        let latent = if scale == 1.0 { latent } else { latent * scale };
        Ok(LatentParts {
            queries: [nope.clone(), self.rotated(rope, ctx)?],
            latent: latent.expand_dims(&[1])?,
            key: self.rotated(&key.expand_dims(&[1])?, ctx)?,
        })
    }

    /// `parts`: of these rows.
    pub(crate) fn call(self, parts: &'a LatentParts) -> LatentCall<'a> {
        let [nope, rope] = &parts.queries;
        LatentCall {
            spec: self.spec,
            queries: [nope, rope],
            latent: &parts.latent,
            key: &parts.key,
            embed_q: self.embed_q,
            unembed_out: self.unembed_out,
            filter: self.filter,
            layer: self.layer,
        }
    }

    fn rotated(&self, x: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        match self.rotation {
            Some(rotation) => rotation.apply(x, ctx.positions()?, &ctx.lengths),
            None => Ok(x.clone()),
        }
    }
}
