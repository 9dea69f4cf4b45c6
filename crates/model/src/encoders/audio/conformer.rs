//! One conformer layer.

use mlx::Array;

use super::blueprint::Conformer;
use super::manifest::{ATTENTION_NORMS, CONVOLUTION_NORMS_OF_LAYER, FEED_FORWARDS};
use super::relative::LocalAttentionBlock;
use crate::Activation;
use crate::blocks::{Linear, NormBlock};
use crate::norm::Norm;
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// A conformer layer with its weights.
pub(super) struct ConformerBlock {
    feed_forwards: [FeedForward; 2],
    attention_norms: [NormBlock; 2],
    attention: LocalAttentionBlock,
    convolution: Convolution,
    norm_out: NormBlock,
}

/// Half a feed-forward part.
struct FeedForward {
    ops: Ops,
    act: Activation,
    norms: [NormBlock; 2],
    up: Linear,
    down: Linear,
    residual: f32,
}

/// A gated, depthwise convolution over a row and those before it.
struct Convolution {
    ops: Ops,
    act: Activation,
    norms: [NormBlock; 2],
    inner: Linear,
    /// `[kernel, hidden]`
    weight: Param,
    out: Linear,
}

impl ConformerBlock {
    pub(super) fn load(spec: &Conformer, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let [first, second] = FEED_FORWARDS.map(|name| format!("{path}.{name}"));
        let feed_forwards =
            [FeedForward::load(spec, store, &first)?, FeedForward::load(spec, store, &second)?];
        let attention_norms = norms(spec.norm_eps, store, path, ATTENTION_NORMS)?;
        let attention = LocalAttentionBlock::load(spec.attention, store, &format!("{path}.attn"))?;
        let convolution = Convolution {
            ops: store.ops(),
            act: spec.act,
            norms: norms(spec.convolution_norm_eps, store, path, CONVOLUTION_NORMS_OF_LAYER)?,
            inner: store.linear(&format!("{path}.conv.in_proj"))?,
            weight: store
                .vector(&format!("{path}.conv.depthwise.weight"))?
                .map(|weight| weight.squeeze(&[2])?.t()?.contiguous())?,
            out: store.linear(&format!("{path}.conv.out_proj"))?,
        };
        let hidden = store.hidden();
        let norm_out = store.norm(&format!("{path}.norm_out"), Norm::Rms { eps: spec.norm_eps }, hidden)?;
        Ok(Self { feed_forwards, attention_norms, attention, convolution, norm_out })
    }

    /// `[rows, hidden]` → the same.
    pub(super) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let ([first, second], [before, after]) = (&self.feed_forwards, &self.attention_norms);
        let x = first.added(x)?;
        let x = &x + after.forward(&self.attention.forward(&before.forward(&x)?)?)?;
        let x = self.convolution.added(&x)?;
        self.norm_out.forward(&second.added(&x)?)
    }
}

fn norms(eps: f32, store: &mut Store, path: &str, names: [&str; 2]) -> Result<[NormBlock; 2], LoadError> {
    let hidden = store.hidden();
    let [before, after] = names.map(|name| store.norm(&format!("{path}.{name}"), Norm::Rms { eps }, hidden));
    Ok([before?, after?])
}

impl FeedForward {
    fn load(spec: &Conformer, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            ops: store.ops(),
            act: spec.act,
            norms: norms(spec.norm_eps, store, path, ATTENTION_NORMS)?,
            up: store.linear(&format!("{path}.up_proj"))?,
            down: store.linear(&format!("{path}.down_proj"))?,
            residual: spec.residual,
        })
    }

    fn added(&self, x: &Array) -> mlx::Result<Array> {
        let [before, after] = &self.norms;
        let inner = self.ops.act(&self.up.forward(&before.forward(x)?)?, self.act)?;
        Ok(x + after.forward(&self.down.forward(&inner)?)? * self.residual)
    }
}

impl Convolution {
    fn added(&self, x: &Array) -> mlx::Result<Array> {
        let [before, after] = &self.norms;
        let [rows, hidden] = x.dims()?;
        let inner = self.inner.forward(&before.forward(x)?)?;
        let [value, gate] = [0, hidden].map(|from| inner.slice(&[0, from], &[rows, from + hidden]));
        let gated = value? * gate?.sigmoid()?;
        let kernel = self.weight.dim(0)?;
        let padded = gated.pad(&[(kernel - 1, 0), (0, 0)], 0.0)?;
        let mut sum: Option<Array> = None;
        for at in 0..kernel {
            let weight = self.weight.slice(&[at, 0], &[at + 1, hidden])?;
            let term = padded.slice(&[at, 0], &[at + rows, hidden])? * weight;
            sum = Some(sum.map_or_else(|| term.clone(), |sum| &sum + &term));
        }
        let sum = sum.ok_or_else(|| mlx::Error::new("a convolution reads at least one row"))?;
        let inner = self.ops.act(&after.forward(&sum)?, self.act)?;
        Ok(x + self.out.forward(&inner)?)
    }
}
