//! Convolutions that make rows of frames.

use mlx::{Array, Dtype};

use super::blueprint::{FramePadding, Stem};
use super::manifest::{CONVOLUTION_NORMS, CONVOLUTIONS, KERNEL, STEM_LINEAR};
use super::plane_norm::PlaneNormBlock;
use crate::Activation;
use crate::blocks::Linear;
use crate::ops::{ConvolutionCall, Ops};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// A stem with its weights.
pub(super) enum StemBlock {
    Frames {
        ops: Ops,
        act: Activation,
        convolutions: [(Param, Param); 2],
    },
    Planes {
        ops: Ops,
        padding: FramePadding,
        convolutions: Box<[(Param, PlaneNormBlock); 2]>,
        linear: Linear,
    },
}

impl StemBlock {
    pub(super) fn load(stem: Stem, store: &mut Store) -> Result<Self, LoadError> {
        let at = |name: &str| format!("encoder.{name}");
        match stem {
            Stem::Frames(act) => {
                let mut convolution = |name: &str| -> Result<_, LoadError> {
                    let part = |part: &str| at(&format!("{name}.{part}"));
                    Ok((store.vector(&part("weight"))?, store.vector(&part("bias"))?))
                };
                let [first, second] = CONVOLUTIONS;
                let convolutions = [convolution(first)?, convolution(second)?];
                Ok(Self::Frames { ops: store.ops(), act, convolutions })
            }
            Stem::Planes { channels: [first, second], norm, padding } => {
                let mut convolution = |which: usize, width: usize| -> Result<_, LoadError> {
                    let weight = store.vector(&at(&format!("{}.weight", CONVOLUTIONS[which])))?;
                    let norm = PlaneNormBlock::load(norm, store, &at(CONVOLUTION_NORMS[which]), width)?;
                    Ok((weight, norm))
                };
                let convolutions = Box::new([convolution(0, first)?, convolution(1, second)?]);
                let linear = store.linear(&at(STEM_LINEAR))?;
                Ok(Self::Planes { ops: store.ops(), padding, convolutions, linear })
            }
        }
    }

    /// `[frames, bands]` → `[rows, hidden]`.
    pub(super) fn forward(&self, spectrum: &Array, dtype: Dtype) -> mlx::Result<Array> {
        const PADDING: i32 = (KERNEL / 2) as i32;
        match self {
            Self::Frames { ops, act, convolutions } => {
                // A map of one column.
                let mut x = spectrum.astype(dtype)?.expand_dims(&[0, 2])?;
                for ((weight, bias), stride) in convolutions.iter().zip([1, 2]) {
                    let (weight, padding) = (&weight.expand_dims(&[2])?, [(PADDING, PADDING), (0, 0)]);
                    let call = ConvolutionCall { x: &x, weight, stride, groups: 1, padding };
                    x = ops.act(&(ops.convolve_map(&call)? + bias), *act)?;
                }
                x.squeeze(&[0, 2])
            }
            Self::Planes { ops, padding, convolutions, linear } => {
                let frames = match padding {
                    FramePadding::Even => (PADDING, PADDING),
                    FramePadding::Behind => (0, 2 * PADDING),
                };
                let mut x = spectrum.astype(dtype)?.expand_dims(&[0, -1])?;
                for (weight, norm) in convolutions.iter() {
                    let padding = [frames, (PADDING, PADDING)];
                    let call = ConvolutionCall { x: &x, weight, stride: 2, groups: 1, padding };
                    x = norm.forward(&ops.convolve_map(&call)?)?.relu()?;
                }
                let [_, rows, bands, channels] = x.dims()?;
                linear.forward(&x.reshape(&[rows, bands * channels])?)
            }
        }
    }
}
