//! Latent attention as a layer that is checked.

use mlx::{Array, Dtype};

use super::normal;
use super::probed::{Probed, rotation};
use crate::mixers::LatentAttention;
use crate::ops::{AttentionNeeds, LatentCall, LatentWeights, LayerContext, Ops, Rotation, Weight};

/// Latent attention with random weights.
pub(super) struct LatentLayer<'a> {
    spec: &'a LatentAttention,
    dtype: Dtype,
    /// `[latent_dim]`
    norm: Array,
    rotation: Option<Rotation>,
    embed_q: Weight,
    unembed_out: Weight,
}

impl<'a> LatentLayer<'a> {
    pub(super) fn new(spec: &'a LatentAttention, dtype: Dtype) -> mlx::Result<Self> {
        let LatentAttention { heads, nope_dim, v_head_dim, latent_dim, .. } = *spec;
        let weight = |outputs: usize, inputs: usize, seed| {
            let scale = Array::scalar((inputs as f32).powf(-0.5), Dtype::F32)?.astype(dtype)?;
            let weight = normal(&[heads, outputs, inputs], dtype, seed)? * scale;
            weight.eval()?;
            Ok::<_, mlx::Error>(Weight::Dense(weight))
        };
        Ok(Self {
            spec,
            dtype,
            norm: normal(&[latent_dim], dtype, 5)?,
            rotation: rotation(&spec.position)?,
            embed_q: weight(latent_dim, nope_dim, 6)?,
            unembed_out: weight(v_head_dim, latent_dim, 7)?,
        })
    }
}

impl Probed for LatentLayer<'_> {
    fn shape(&self) -> String {
        let LatentAttention { heads, latent_dim, rope_dim, .. } = self.spec;
        format!("{heads} heads, latents of {latent_dim} and {rope_dim}")
    }

    fn projected(&self, rows: usize, seed: u64) -> mlx::Result<Vec<Array>> {
        let LatentAttention { heads, latent_dim, rope_dim, .. } = *self.spec;
        Ok(vec![
            normal(&[rows, heads, self.spec.query_head_dim()], self.dtype, seed)?,
            normal(&[rows, latent_dim + rope_dim], self.dtype, seed + 1)?,
        ])
    }

    fn add_to<'a>(&'a self, needs: &mut AttentionNeeds<'a>) {
        needs.latents.push(self.spec);
    }

    fn attend(&self, ops: &Ops, projected: &[Array], layer: LayerContext) -> mlx::Result<Array> {
        let [queries, projected] = projected else { return Err(mlx::Error::new("queries and latents")) };
        ops.attend_latent(LatentCall {
            spec: self.spec,
            queries,
            projected,
            latent_norm: &self.norm,
            rotation: self.rotation.as_ref(),
            weights: LatentWeights { embed_q: &self.embed_q, unembed_out: &self.unembed_out },
            filter: None,
            layer,
        })
    }

    fn cached(&self) -> usize {
        self.spec.latent_dim + self.spec.rope_dim
    }
}
