//! A perceiver: learned rows that attend to the rows of a view and to themselves.
//!
//! Source: arXiv 2103.03206; transformers `models/idefics2/modeling_idefics2.py`.

use mlx::Array;

use super::blueprint::Perceiver;
use super::manifest::{ATTENTION, PERCEIVER, PERCEIVER_NORMS};
use crate::blocks::{Linear, MlpBlock, NormBlock};
use crate::mlps::{GatedMlp, Mlp};
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The perceiver with its weights.
pub(super) struct PerceiverBlock {
    ops: Ops,
    spec: Perceiver,
    /// `[latents, width]`
    latents: Param,
    layers: Vec<Layer>,
    norm: NormBlock,
}

struct Layer {
    /// Of the latents, of the view's rows, and before the MLP.
    norms: [NormBlock; 3],
    /// Of queries, keys, values and outputs.
    attention: [Linear; 4],
    mlp: Box<dyn MlpBlock>,
}

impl PerceiverBlock {
    /// Below a connector at `path`, over rows of this width.
    pub(super) fn load(
        spec: &Perceiver,
        width: usize,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let path = format!("{path}.{PERCEIVER}");
        let layer = |number: usize| -> Result<Layer, LoadError> {
            let at = format!("{path}.layers.{number}");
            let [latents, context, mlp] =
                PERCEIVER_NORMS.map(|name| store.norm(&format!("{at}.{name}"), spec.norm, width));
            let [q, k, v, o] = ATTENTION.map(|name| store.linear(&format!("{at}.attn.{name}")));
            let gated = Mlp::from(GatedMlp { width: spec.width, act: spec.act, bias: false });
            Ok(Layer {
                norms: [latents?, context?, mlp?],
                attention: [q?, k?, v?, o?],
                mlp: gated.load(store, &format!("{at}.mlp"))?,
            })
        };
        let layers = (0..spec.layers).map(layer).collect::<Result<_, _>>()?;
        Ok(Self {
            ops: store.ops(),
            spec: *spec,
            latents: store.vector(&format!("{path}.latents"))?,
            layers,
            norm: store.norm(&format!("{path}.norm"), spec.norm, width)?,
        })
    }

    /// `rows`: those of `views` views of equal size, `[rows, width]` → `[views · latents, width]`.
    pub(super) fn forward(&self, rows: &Array, views: usize) -> mlx::Result<Array> {
        let [_, width] = rows.dims()?;
        let (views, latents) = (views as i32, self.spec.latents as i32);
        let context = rows.reshape(&[views, -1, width])?;
        let mut x = self.latents.astype(rows.dtype()?)?.broadcast_to(&[views, latents, width])?;
        for Layer { norms: [of_latents, of_context, before_mlp], attention, mlp } in &self.layers {
            let read = of_latents.forward(&x)?;
            let seen = mlx::concatenate(&[&of_context.forward(&context)?, &read], 1)?;
            x = &x + self.attend(&read, &seen, attention)?;
            let flat = before_mlp.forward(&x)?.reshape(&[views * latents, width])?;
            x = &x + mlp.forward(&flat)?.reshape(&[views, latents, width])?;
        }
        self.norm.forward(&x)?.reshape(&[views * latents, width])
    }

    /// `latents` and `seen`: `[views, rows, width]`.
    fn attend(&self, latents: &Array, seen: &Array, [q, k, v, o]: &[Linear; 4]) -> mlx::Result<Array> {
        let Perceiver { heads, kv_heads, head_dim, .. } = self.spec;
        let by_head = |linear: &Linear, x: &Array, heads: usize| -> mlx::Result<Array> {
            let [views, rows, _] = x.dims()?;
            let x = linear.forward(x)?.reshape(&[views, rows, heads as i32, head_dim as i32])?;
            x.transpose(&[0, 2, 1, 3])
        };
        let repeated = |x: Array| -> mlx::Result<Array> {
            let [views, _, rows, width] = x.dims()?;
            let shared = (heads / kv_heads.max(1)) as i32;
            let shape = [views, kv_heads as i32, shared, rows, width];
            x.expand_dims(&[2])?.broadcast_to(&shape)?.reshape(&[views, heads as i32, rows, width])
        };
        let queries = by_head(q, latents, heads)?;
        let keys = repeated(by_head(k, seen, kv_heads)?)?;
        let values = repeated(by_head(v, seen, kv_heads)?)?;
        let attended = self.ops.attend_all([&queries, &keys, &values], (head_dim as f32).powf(-0.5))?;
        let [views, _, rows, _] = attended.dims()?;
        o.forward(&attended.transpose(&[0, 2, 1, 3])?.reshape(&[views, rows, (heads * head_dim) as i32])?)
    }
}
