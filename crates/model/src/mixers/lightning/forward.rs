//! The forward pass of lightning attention: chunks of rows with all their pairs at once.

use mlx::{Array, Dtype, fast};

use super::Lightning;
use crate::blocks::{Fused, Linear, MixerBlock, NormBlock};
use crate::forward::ForwardContext;
use crate::norm::Norm;
use crate::ops::{LayerContext, Rotation};
use crate::params::Param;
use crate::rope::Position;
use crate::weights::{LoadError, Store};

/// Rows that are computed at once; their decays form a square.
const CHUNK: i32 = 64;

/// One layer of lightning attention.
pub(crate) struct LightningBlock {
    spec: Lightning,
    qkv: Fused,
    norms: Option<[NormBlock; 2]>,
    rotation: Option<Rotation>,
    /// `[heads, 1, 1]` f32.
    slopes: Param,
    gate: Linear,
    /// `[heads · head_dim]` f32.
    norm: Param,
    out: Linear,
}

impl LightningBlock {
    pub(crate) fn load(spec: &Lightning, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let qkv = ["q_proj", "k_proj", "v_proj"].map(|name| store.linear(&at(name)));
        let mut norm = |name: &str| store.norm(&at(name), Norm::Rms { eps: spec.norm_eps }, spec.head_dim);
        let norms = if spec.qk_norm { Some([norm("q_norm")?, norm("k_norm")?]) } else { None };
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope, store.params())?),
            Position::None => None,
        };
        Ok(Self {
            qkv: Fused::new(qkv.into_iter().collect::<Result<_, _>>()?)?,
            norms,
            rotation,
            slopes: store.params().hold(Array::from_slice(&spec.slopes, &[spec.heads as i32, 1, 1])? * 1.0),
            gate: store.linear(&at("g_proj"))?,
            norm: store.float(&at("g_norm.weight"))?,
            out: store.linear(&at("o_proj"))?,
            spec: spec.clone(),
        })
    }

    /// Queries, keys and values, `[T, 3 · heads · head_dim]` f32.
    fn rows(&self, x: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let (heads, dim) = (self.spec.heads as i32, self.spec.head_dim as i32);
        let qkv = self.qkv.forward(x)?;
        let [rows, _] = qkv.dims()?;
        let parts = qkv.split(&[heads * dim, 2 * heads * dim], -1)?;
        let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
        let mut pair = [q.reshape(&[rows, heads, dim])?, k.reshape(&[rows, heads, dim])?];
        for (part, which) in pair.iter_mut().zip(0..) {
            if let Some(norm) = self.norms.as_ref().and_then(|norms| norms.get(which)) {
                *part = norm.forward(&part.contiguous()?)?;
            }
            if let Some(rotation) = &self.rotation {
                *part = rotation.apply(part, ctx.positions()?, &ctx.lengths)?;
            }
            *part = part.reshape(&[rows, heads * dim])?;
        }
        let [q, k] = pair;
        let q = q * (dim as f32).powf(-0.5);
        mlx::concatenate(&[&q, &k, v], -1)?.astype(Dtype::F32)
    }

    /// `qkv`: `[n, len, 3 · heads · head_dim]`; `memory`: `[n, heads, head_dim, head_dim]` → `[n, len, heads · head_dim]`
    /// and the memory after it.
    fn scan(&self, qkv: &Array, memory: &Array) -> mlx::Result<(Array, Array)> {
        let [count, len, width] = qkv.dims()?;
        let (mut memory, mut outputs) = (memory.clone(), Vec::new());
        for start in (0..len).step_by(CHUNK as usize) {
            let rows = qkv.slice(&[0, start, 0], &[count, len.min(start + CHUNK), width])?;
            let (y, after) = self.chunk(&rows, &memory)?;
            outputs.push(y);
            memory = after;
        }
        Ok((mlx::concatenate(&outputs.iter().collect::<Vec<_>>(), 1)?, memory))
    }

    /// As [`scan`](Self::scan), with all pairs of rows at once.
    fn chunk(&self, qkv: &Array, memory: &Array) -> mlx::Result<(Array, Array)> {
        let (heads, dim) = (self.spec.heads as i32, self.spec.head_dim as i32);
        let [count, len, _] = qkv.dims()?;
        let parts =
            qkv.reshape(&[count, len, 3, heads, dim])?.transpose(&[2, 0, 3, 1, 4])?.split(&[1, 2], 0)?;
        let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
        let (q, k, v) = (q.squeeze(&[0])?, k.squeeze(&[0])?, v.squeeze(&[0])?);
        let places = Array::arange(0..len, Dtype::F32)?;
        let fading = |ages: Array| -> mlx::Result<Array> { (&*self.slopes * ages).negative()?.exp() };
        let ages = places.expand_dims(&[-1])? - places.expand_dims(&[0])?;
        let left = fading(ages.maximum(&Array::scalar(0.0, Dtype::F32)?)?)?.tril(0)?;
        let scores = q.matmul(&k.swapaxes(-1, -2)?)? * left;
        let since_start = fading((&places + 1.0).expand_dims(&[-1])?)?;
        let y = scores.matmul(&v)? + (&q * since_start).matmul(memory)?;
        let to_end = fading((places * -1.0 + (len - 1) as f32).expand_dims(&[-1])?)?;
        let whole = (&*self.slopes * -(len as f32)).exp()?;
        let after = (k * to_end).swapaxes(-1, -2)?.matmul(&v)? + memory * whole;
        Ok((y.transpose(&[0, 2, 1, 3])?.reshape(&[count, len, heads * dim])?, after))
    }
}

impl MixerBlock for LightningBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let qkv = self.rows(x, layer.ctx)?;
        let y = layer.advance(|run, [other, memory]| {
            let (y, memory) = self.scan(&run.rows(&qkv)?, memory)?;
            Ok((y, [other.clone(), memory]))
        })?;
        let [rows, inner] = y.dims()?;
        let parts = y.reshape(&[rows, self.spec.norm_groups as i32, -1])?;
        let normed = fast::rms_norm(&parts, None, self.spec.norm_eps)?.reshape(&[rows, inner])? * &self.norm;
        let gate = self.gate.forward(x)?.astype(Dtype::F32)?.sigmoid()?;
        self.out.forward(&(normed * gate).astype(x.dtype()?)?)
    }
}
