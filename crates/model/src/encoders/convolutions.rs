//! Towers of convolutions: from pixels to rows, in the place of patches and layers.
//!
//! Rows of a picture are kept as a map `[count, height, width, channels]`. Tensors have timm's names below `encoder`.
//!
//! Source: arXiv 2404.10518 (blocks); timm `models/mobilenetv5.py`, `models/_efficientnet_blocks.py` (arrangement).

mod block;
mod blueprint;
mod fusion;
mod layout;
mod manifest;
mod map;
mod tower;

pub use blueprint::{ConvBlock, ConvBlockKind, ConvTower, Fusion};
pub(super) use layout::channels_last;
pub(super) use tower::TowerBlock;
