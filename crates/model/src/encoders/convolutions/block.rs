//! One block of a tower, with its weights.

use mlx::Array;

use super::blueprint::{ConvBlock, ConvBlockKind, ConvTower};
use super::map::{Convolution, Normed, Product};
use crate::Activation;
use crate::blocks::{Linear, NormBlock};
use crate::encoders::layer::attention;
use crate::norm::Norm;
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// Queries that attend in one call: there are few keys.
const QUERIES_MAX: i32 = 1 << 14;

/// A block with its weights.
pub(super) struct BlockOf {
    adds_input: bool,
    parts: Parts,
    /// Factors of what comes out, `[channels]`.
    scale: Option<Param>,
}

enum Parts {
    /// One after the other.
    Chain(Vec<Normed>),
    Attention(Box<SharedAttention>),
}

impl BlockOf {
    pub(super) fn load(
        spec: &ConvBlock,
        tower: &ConvTower,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let parts = match spec.kind {
            ConvBlockKind::Edge { inner, .. } => Parts::Chain(edge(spec, inner, tower, (&mut *store, path))?),
            ConvBlockKind::Inverted { before, between, behind, inner } => {
                let kernels = [before, between, behind];
                Parts::Chain(inverted(spec, (kernels, inner), tower, (&mut *store, path))?)
            }
            ConvBlockKind::Attention { heads, key_stride, .. } => {
                let attention =
                    SharedAttention::load((heads, key_stride), (spec.from, tower.norm), store, path)?;
                Parts::Attention(Box::new(attention))
            }
        };
        let scale = match spec.kind {
            ConvBlockKind::Edge { .. } => None,
            ConvBlockKind::Inverted { .. } | ConvBlockKind::Attention { .. } => {
                Some(store.vector(&format!("{path}.layer_scale.gamma"))?)
            }
        };
        Ok(Self { adds_input: spec.adds_input(), parts, scale })
    }

    /// `[count, height, width, from]` → `[count, height / stride, width / stride, to]`.
    pub(super) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let made = match &self.parts {
            Parts::Chain(parts) => parts.iter().try_fold(x.clone(), |x, part| part.forward(&x))?,
            Parts::Attention(attention) => attention.forward(x)?,
        };
        let made = match &self.scale {
            Some(scale) => made * scale,
            None => made,
        };
        Ok(if self.adds_input { x + made } else { made })
    }
}

/// Where tensors come from, below a path.
type Below<'a> = (&'a mut Store, &'a str);

fn edge(
    spec: &ConvBlock,
    inner: usize,
    tower: &ConvTower,
    (store, path): Below,
) -> Result<Vec<Normed>, LoadError> {
    let expansion = Convolution::load(store, &format!("{path}.conv_exp"), spec.stride)?;
    let (norm, to) = (format!("{path}.bn1"), (tower.norm, inner));
    let expansion = Normed::new(Product::Convolution(expansion), (store, &norm), to, Some(tower.act))?;
    let projection = store.linear(&format!("{path}.conv_pwl"))?;
    let (norm, to) = (format!("{path}.bn2"), (tower.norm, spec.to));
    let projection = Normed::new(Product::Linear(projection), (store, &norm), to, None)?;
    Ok(vec![expansion, projection])
}

/// The first of its convolutions that is between or before takes the stride, else the one behind.
fn inverted(
    spec: &ConvBlock,
    ([before, between, behind], inner): ([usize; 3], usize),
    tower: &ConvTower,
    (store, path): Below,
) -> Result<Vec<Normed>, LoadError> {
    let stride_if = |has_it: bool| if has_it { spec.stride } else { 1 };
    let mut parts = Vec::new();
    let depthwise = |store: &mut Store, name: &str, stride: usize, width: usize, act: Option<Activation>| {
        let convolution = Convolution::depthwise(store, &format!("{path}.{name}.conv"), stride)?;
        let norm = format!("{path}.{name}.bn");
        Normed::new(Product::Convolution(convolution), (store, &norm), (tower.norm, width), act)
    };
    if before > 0 {
        parts.push(depthwise(store, "dw_start", stride_if(between == 0), spec.from, None)?);
    }
    parts.push(linear(tower.norm, (store, &format!("{path}.pw_exp")), inner, Some(tower.act))?);
    if between > 0 {
        parts.push(depthwise(store, "dw_mid", spec.stride, inner, Some(tower.act))?);
    }
    parts.push(linear(tower.norm, (store, &format!("{path}.pw_proj")), spec.to, None)?);
    if behind > 0 {
        parts.push(depthwise(store, "dw_end", stride_if(before + between == 0), spec.to, None)?);
    }
    Ok(parts)
}

/// A linear layer to `width` channels with its norm.
pub(super) fn linear(
    norm: Norm,
    (store, path): Below,
    width: usize,
    act: Option<Activation>,
) -> Result<Normed, LoadError> {
    let linear = store.linear(&format!("{path}.conv"))?;
    Normed::new(Product::Linear(linear), (store, &format!("{path}.bn")), (norm, width), act)
}

/// Attention of all places to all keys, which all heads share. Source: arXiv 1911.02150.
struct SharedAttention {
    ops: Ops,
    heads: i32,
    norm: NormBlock,
    query: Linear,
    key: Keys,
    value: Keys,
    out: Linear,
}

/// Keys or values.
struct Keys {
    /// Where there are fewer of them than places.
    fewer: Option<(Convolution, NormBlock)>,
    linear: Linear,
}

impl SharedAttention {
    fn load(
        (heads, key_stride): (usize, usize),
        (width, norm): (usize, Norm),
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let keys = |store: &mut Store, name: &str| {
            let path = format!("{path}.attn.{name}");
            let fewer = match key_stride {
                1 => None,
                stride => {
                    let convolution = Convolution::depthwise(store, &format!("{path}.down_conv"), stride)?;
                    Some((convolution, store.norm(&format!("{path}.norm"), norm, width)?))
                }
            };
            Ok(Keys { fewer, linear: store.linear(&format!("{path}.proj"))? })
        };
        let [key, value]: [Result<Keys, LoadError>; 2] = ["key", "value"].map(|name| keys(store, name));
        Ok(Self {
            ops: store.ops(),
            heads: heads as i32,
            norm: store.norm(&format!("{path}.norm"), norm, width)?,
            query: store.linear(&format!("{path}.attn.query.proj"))?,
            key: key?,
            value: value?,
            out: store.linear(&format!("{path}.attn.output.proj"))?,
        })
    }

    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let [count, height, width, _] = x.dims()?;
        let x = self.norm.forward(x)?;
        let query = self.query.forward(&x)?;
        let inner = query.dim(-1)?;
        let head_dim = inner / self.heads;
        // One head with all queries is the same as many with the same keys.
        let query = query.reshape(&[count, 1, height * width * self.heads, head_dim])?;
        let [key, value] = [self.key.forward(&x)?, self.value.forward(&x)?];
        let scale = (head_dim as f32).powf(-0.5);
        let seen = attention(&self.ops, [&query, &key, &value], scale, QUERIES_MAX)?;
        self.out.forward(&seen.reshape(&[count, height, width, inner])?)
    }
}

impl Keys {
    /// `[count, 1, keys, head_dim]`
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let fewer = match &self.fewer {
            Some((convolution, norm)) => norm.forward(&convolution.forward(x)?)?,
            None => x.clone(),
        };
        let made = self.linear.forward(&fewer)?;
        let [count, height, width, head_dim] = made.dims()?;
        made.reshape(&[count, 1, height * width, head_dim])
    }
}
