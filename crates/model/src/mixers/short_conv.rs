//! A gated convolution over the last few positions (LFM2).
//!
//! Source: mlx-lm `models/lfm2.py`.

mod forward;
mod spec;

pub(super) use forward::ShortConvBlock;
pub use spec::{ConvReach, ShortConv};
