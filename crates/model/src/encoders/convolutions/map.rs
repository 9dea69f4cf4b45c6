//! Convolutions over maps, `[count, height, width, channels]`.

use mlx::Array;

use crate::Activation;
use crate::blocks::{Linear, NormBlock};
use crate::norm::Norm;
use crate::ops::{ConvolutionCall, Ops};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// A convolution whose output is a `stride`-th of the map, rounded up: what it reads beyond the map is 0, as much on the
/// left and above as on the right and below, or one less.
pub(super) struct Convolution {
    ops: Ops,
    /// `[out, kernel, kernel, in / groups]`
    weight: Param,
    bias: Option<Param>,
    stride: i32,
    groups: i32,
}

impl Convolution {
    /// Over all channels.
    pub(super) fn load(store: &mut Store, path: &str, stride: usize) -> Result<Self, LoadError> {
        let weight = store.vector(&format!("{path}.weight"))?;
        Ok(Self { ops: store.ops(), weight, bias: None, stride: stride as i32, groups: 1 })
    }

    /// Over each channel by itself.
    pub(super) fn depthwise(store: &mut Store, path: &str, stride: usize) -> Result<Self, LoadError> {
        let convolution = Self::load(store, path, stride)?;
        let groups = convolution.weight.dim(0)?;
        Ok(Self { groups, ..convolution })
    }

    /// This convolution with the bias at this path.
    pub(super) fn with_bias(self, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self { bias: Some(store.vector(&format!("{path}.bias"))?), ..self })
    }

    pub(super) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let ([_, height, width, _], kernel) = (x.dims()?, self.weight.dim(1)?);
        let padding = [height, width].map(|side| padding(side, kernel, self.stride));
        let Self { ops, weight, stride, groups, .. } = self;
        let call = ConvolutionCall { x, weight, stride: *stride, groups: *groups, padding };
        let made = ops.convolve_map(&call)?;
        Ok(match &self.bias {
            Some(bias) => made + bias,
            None => made,
        })
    }
}

/// Zeros before and behind a side, so that a convolution gives a `stride`-th of it.
fn padding(side: i32, kernel: i32, stride: i32) -> (i32, i32) {
    let places = (side + stride - 1) / stride;
    let all = ((places - 1) * stride + kernel - side).max(0);
    (all / 2, all - all / 2)
}

/// A convolution or a linear layer, then a norm and perhaps a non-linearity.
pub(super) struct Normed {
    ops: Ops,
    product: Product,
    norm: NormBlock,
    act: Option<Activation>,
}

/// From channels to channels.
pub(super) enum Product {
    Convolution(Convolution),
    Linear(Linear),
}

impl Normed {
    /// `width`: channels that come out.
    pub(super) fn new(
        product: Product,
        (store, path): (&mut Store, &str),
        (norm, width): (Norm, usize),
        act: Option<Activation>,
    ) -> Result<Self, LoadError> {
        Ok(Self { ops: store.ops(), product, norm: store.norm(path, norm, width)?, act })
    }

    pub(super) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let made = match &self.product {
            Product::Convolution(convolution) => convolution.forward(x)?,
            Product::Linear(linear) => linear.forward(x)?,
        };
        let normed = self.norm.forward(&made)?;
        match self.act {
            Some(act) => self.ops.act(&normed, act),
            None => Ok(normed),
        }
    }
}

#[test]
fn an_odd_zero_stands_behind() {
    assert_eq!([padding(6, 3, 2), padding(5, 3, 2), padding(6, 5, 2)], [(0, 1), (1, 1), (1, 2)]);
    assert_eq!([padding(6, 3, 1), padding(6, 5, 1), padding(1, 3, 2)], [(1, 1), (2, 2), (1, 1)]);
}
