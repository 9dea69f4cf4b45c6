//! Norms, rotation and temperature of queries and keys in MLX's operations, for what attention kernels do not have.

use mlx::{Array, Dtype, fast};

use super::normed::QkNormBlock;
use super::{Attention, AttentionSpan, KeySource, NormAt, QkNorm, Temperature};
use crate::forward::ForwardContext;
use crate::ops::{GpuFusions, Ops, Rotation};
use crate::params::Param;
use crate::weights::{LoadError, Store};

impl Attention {
    /// True where attention kernels norm queries and keys themselves, if they are normed at all.
    pub(super) fn norms_in_kernels(&self) -> bool {
        self.rotates_in_kernels() && self.qk_norm.is_none_or(|norm| norm.in_kernels().is_some())
    }

    /// True where attention kernels rotate queries and keys themselves: nothing comes between rotation and scores.
    pub(super) fn rotates_in_kernels(&self) -> bool {
        let early = self.qk_norm.is_none_or(|norm| norm.at == NormAt::BeforeRotation);
        early && self.temperature.is_none() && !self.changes_rotated()
    }

    /// True where rotated queries or keys are changed as no kernel does it.
    fn changes_rotated(&self) -> bool {
        let has_late_norm = |norm: QkNorm| norm.at == NormAt::AfterRotation && norm.in_kernels().is_none();
        self.qk_norm.is_some_and(has_late_norm) || (self.rounds_keys && self.has_keys()) || self.query_gain
    }

    /// What is left for all kernels to do, or for MLX's operations, where the GPU's kernels take the rest: limits of what is
    /// projected, norms behind the rotation, and temperatures. `None` where these take nothing.
    fn without_gpu_fusions(&self) -> Option<(Self, GpuFusions)> {
        let mut fused = self.gpu_fusions();
        if fused == GpuFusions::NONE || self.changes_rotated() {
            return None;
        }
        let qk_norm = self.qk_norm.map(|norm| QkNorm { at: NormAt::BeforeRotation, ..norm });
        let mut left = Self { clip_qkv: None, qk_norm, temperature: None, ..self.clone() };
        if !left.norms_in_kernels() {
            // The limits come before the norm.
            left.clip_qkv = fused.clip.take();
        }
        Some((left, fused))
    }

    /// What the GPU's kernels alone fuse with the rotation.
    pub(crate) fn gpu_fusions(&self) -> GpuFusions {
        GpuFusions {
            clip: self.clip_qkv,
            norm_at: self.qk_norm.map_or(NormAt::BeforeRotation, |norm| norm.at),
            temperature: self.temperature,
        }
    }
}

/// A layer's attention, decided once for each set of kernels.
pub(in crate::mixers) struct CallSpec {
    /// What all kernels compute.
    spec: Attention,
    /// What is left where the GPU's kernels fuse the rest.
    fused: Option<(Attention, GpuFusions)>,
}

impl CallSpec {
    pub(in crate::mixers) fn new(spec: &Attention) -> Self {
        Self { spec: spec.clone(), fused: spec.without_gpu_fusions() }
    }

    /// What the layer computes.
    pub(in crate::mixers) fn spec(&self) -> &Attention {
        &self.spec
    }

    /// What is left where the GPU's kernels take part, and what they fuse.
    pub(super) fn on_gpu(&self) -> (&Attention, GpuFusions) {
        self.fused.as_ref().map_or((&self.spec, GpuFusions::NONE), |(left, fused)| (left, *fused))
    }

    pub(super) fn has_gpu_fusions(&self) -> bool {
        self.fused.is_some()
    }

    /// Changes which earlier positions a query attends to.
    pub(in crate::mixers) fn set_span(&mut self, span: AttentionSpan) {
        self.spec.span = span;
        if let Some((left, _)) = &mut self.fused {
            left.span = span;
        }
    }
}

impl Temperature {
    /// Queries `[T, heads, _]` of the pass, each at its position.
    pub(crate) fn apply(self, queries: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let Self { beta, period, shift } = self;
        let positions = ctx.positions()?.astype(Dtype::F32)? + shift as f32;
        let periods = (positions / period.max(1) as f32).floor()?;
        let factors = (periods.log1p()? * beta + 1.0).expand_dims(&[1, 2])?;
        Ok(queries * factors.astype(queries.dtype()?)?)
    }
}

/// What happens to queries, keys and values between their projection and attention.
pub(super) struct Preparation<'a> {
    pub(super) spec: &'a Attention,
    pub(super) ops: &'a Ops,
    pub(super) norm: Option<&'a QkNormBlock>,
    pub(super) rotation: Option<&'a Rotation>,
    pub(super) rounding: Option<&'a Rounding>,
    /// Of each head's queries, `[heads]`.
    pub(super) gain: Option<&'a Array>,
}

impl Preparation<'_> {
    /// Queries, keys and values as attention takes them, from a projection of those that the layer has.
    pub(super) fn apply(&self, projected: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let spec = self.spec;
        if let Some((weights, eps)) = self.norm_alone() {
            return self.ops.norm_columns(projected, weights, eps);
        }
        let [rows, _] = projected.dims()?;
        let (heads, kv_heads, dim) = (spec.heads as i32, spec.kv_heads as i32, spec.head_dim as i32);
        let cuts = [heads * dim, (heads + kv_heads) * dim];
        let parts = match spec.keys {
            KeySource::Own => projected.split(&cuts, -1)?,
            KeySource::OwnAsValues => projected.split(&cuts[..1], -1)?,
            KeySource::Layer(_) => vec![projected.clone()],
        };
        let queries = |q: &Array| -> mlx::Result<Array> {
            let q = self.turned(q.reshape(&[rows, heads, dim])?, QkNormBlock::queries, ctx)?;
            let q = match spec.temperature {
                Some(temperature) => temperature.apply(&q, ctx)?,
                None => q,
            };
            let q = match self.gain {
                Some(gain) => q * gain.expand_dims(&[-1])?,
                None => q,
            };
            q.reshape(&[rows, heads * dim])
        };
        let keys = |k: &Array| -> mlx::Result<Array> {
            let k = self.turned(k.reshape(&[rows, kv_heads, dim])?, QkNormBlock::keys, ctx)?;
            let k = k.reshape(&[rows, kv_heads * dim])?;
            self.rounding.map_or(Ok(k.clone()), |rounding| round(&k, &rounding.keys))
        };
        match parts.as_slice() {
            [q] => queries(q),
            [q, k] => mlx::concatenate(&[&queries(q)?, &keys(k)?, &self.values(k)?], -1),
            [q, k, v] => mlx::concatenate(&[&queries(q)?, &keys(k)?, &self.values(v)?], -1),
            _ => Err(mlx::Error::new("queries, keys and values")),
        }
    }

    /// The norm of all heads together and its epsilon, if nothing else is left to do.
    fn norm_alone(&self) -> Option<([&Array; 2], f32)> {
        let Self { spec, rotation, rounding, gain, .. } = self;
        let plain = rotation.is_none() && rounding.is_none() && gain.is_none();
        let plain = plain && spec.temperature.is_none() && spec.value_norm.is_none();
        self.norm?.of_all_heads().filter(|_| plain && spec.keys == KeySource::Own)
    }

    /// Heads of queries or keys, `[T, _, head_dim]`, normed before or after they are rotated.
    fn turned(
        &self,
        x: Array,
        normed: fn(&QkNormBlock, NormAt, Array) -> mlx::Result<Array>,
        ctx: &ForwardContext,
    ) -> mlx::Result<Array> {
        let norm = |x: Array, at: NormAt| match self.norm {
            Some(norm) => normed(norm, at, x),
            None => Ok(x),
        };
        let x = norm(x, NormAt::BeforeRotation)?;
        let x = match self.rotation {
            Some(rotation) => rotation.apply_in(&x, ctx)?,
            None => x,
        };
        norm(x, NormAt::AfterRotation)
    }

    fn values(&self, v: &Array) -> mlx::Result<Array> {
        let [rows, width] = v.dims()?;
        let v = match self.spec.value_norm {
            Some(eps) => {
                let by_head = v.reshape(&[rows, self.spec.kv_heads as i32, -1])?;
                fast::rms_norm(&by_head, None, eps)?.reshape(&[rows, width])?
            }
            None => v.clone(),
        };
        self.rounding.map_or(Ok(v.clone()), |rounding| round(&v, &rounding.values))
    }
}

/// Scales of keys and of values that are rounded as if they were stored in 8 bits, `[]` f32.
pub(super) struct Rounding {
    keys: Param,
    values: Param,
}

impl Rounding {
    pub(super) fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut scale = |name: &str| store.float(&format!("{path}.{name}"));
        Ok(Self { keys: scale("quant_key_scale")?, values: scale("quant_value_scale")? })
    }
}

fn round(x: &Array, scale: &Array) -> mlx::Result<Array> {
    let [low, high] = [Array::scalar(-128.0, Dtype::F32)?, Array::scalar(127.0, Dtype::F32)?];
    let codes = (x.astype(Dtype::F32)? / scale).round()?.clip(Some(&low), Some(&high))?;
    (codes * scale).astype(x.dtype()?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::families;
    use crate::mixers::Mixer;

    /// The attention of a fixture's first layer.
    fn attention(fixture: &str) -> Attention {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture).join("config.json");
        let config = std::fs::read_to_string(file).unwrap();
        let blueprint = families::read(&serde_json::from_str(&config).unwrap()).unwrap();
        match &blueprint.layers[0].mixer {
            Mixer::Attention(spec) => spec.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn gpu_kernels_take_late_norms_and_limits() {
        let hunyuan = attention("hunyuan_v1_dense");
        assert!(!hunyuan.norms_in_kernels());
        let (left, fused) = hunyuan.without_gpu_fusions().unwrap();
        assert!(left.norms_in_kernels() && fused.norm_at == NormAt::AfterRotation);
        let dbrx = attention("dbrx");
        let (left, fused) = dbrx.without_gpu_fusions().unwrap();
        assert!(dbrx.clip_qkv.is_some() && left.clip_qkv.is_none() && fused.clip == dbrx.clip_qkv);
    }

    #[test]
    fn what_no_kernel_norms_is_limited_before() {
        let normed = Attention { qk_norm: Some(QkNorm::full_width(1e-6)), ..attention("dbrx") };
        let (left, fused) = normed.without_gpu_fusions().unwrap();
        assert!(left.clip_qkv == normed.clip_qkv && fused.clip.is_none());
        let talkie = attention("talkie");
        assert!(CallSpec::new(&talkie).on_gpu() == (&talkie, GpuFusions::NONE));
    }
}
