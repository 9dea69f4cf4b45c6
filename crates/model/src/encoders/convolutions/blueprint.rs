//! The description of one tower: plain data.

use crate::Activation;
use crate::norm::Norm;
use crate::rules::Broken;

/// A convolution that halves the picture, stages of blocks, and what makes rows of the stages' outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvTower {
    /// Channels that the first convolution gives.
    pub stem: usize,
    /// Blocks of each stage, in order of execution.
    pub stages: Vec<Vec<ConvBlock>>,
    #[allow(missing_docs)]
    pub fusion: Fusion,
    /// Behind the first convolution and inside of blocks.
    pub act: Activation,
    /// Over the channels of a place, behind each convolution.
    pub norm: Norm,
}

/// One block. Its input is added to its output where both are of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvBlock {
    /// Channels that it reads.
    pub from: usize,
    /// Channels that it gives.
    pub to: usize,
    /// By how much it shrinks the map.
    pub stride: usize,
    #[allow(missing_docs)]
    pub kind: ConvBlockKind,
}

/// What a block computes. Kernels are squares with so many places on a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ConvBlockKind {
    /// A convolution to `inner` channels, then a linear layer.
    Edge { kernel: usize, inner: usize },
    /// Linear layers to `inner` channels and back, with depthwise convolutions before, between and behind them; 0 stands
    /// for none.
    Inverted { before: usize, between: usize, behind: usize, inner: usize },
    /// Attention of all places, whose heads share keys and values. A depthwise convolution makes fewer of these, if their
    /// stride is more than 1.
    Attention { heads: usize, head_dim: usize, kernel: usize, key_stride: usize },
}

/// The outputs of some stages at the size of the first of them, side by side, then linear layers to `inner` channels and to
/// the rows' width, and means of squares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fusion {
    /// Which stages.
    pub stages: Vec<usize>,
    #[allow(missing_docs)]
    pub inner: usize,
    /// Rows of a picture on a side.
    pub side: usize,
}

/// Most blocks of a tower, places on a side of a kernel, and rows on a side.
const BLOCKS_MAX: usize = 1024;
const KERNEL_MAX: usize = 15;
const SIDE_MAX: usize = 256;

impl ConvTower {
    /// How many pixels on a side become one place of the first stage that is fused.
    pub fn pixels(&self) -> usize {
        let last = self.fusion.stages.first().copied().unwrap_or(0);
        let strides = self.stages.iter().take(last + 1).flatten().map(|block| block.stride);
        strides.fold(2, |pixels, stride| pixels.saturating_mul(stride))
    }

    /// Channels of the stages that are fused.
    pub(super) fn fused(&self) -> usize {
        let of_stage = |stage: &usize| Some(self.stages.get(*stage)?.last()?.to);
        self.fusion.stages.iter().filter_map(of_stage).sum()
    }

    /// Checks what the types cannot say.
    pub(in crate::encoders) fn check(&self, broken: &mut Broken) {
        let blocks = self.stages.iter().flatten();
        broken.check(blocks.clone().count() <= BLOCKS_MAX, || {
            format!("`block_args` has at most {BLOCKS_MAX} blocks")
        });
        broken.size(&[("stem_size", self.stem)]);
        for block in blocks {
            block.check(broken);
        }
        broken.check(self.stages.iter().all(|stage| !stage.is_empty()), || {
            "each stage of `block_args` has blocks".to_owned()
        });
        let count = self.stages.len();
        broken.check(
            !self.fusion.stages.is_empty() && self.fusion.stages.iter().all(|stage| *stage < count),
            || format!("fused stages are among {count}"),
        );
        broken.size(&[("fused channels", self.fused()), ("inner channels", self.fusion.inner)]);
        let side = self.fusion.side;
        broken.check((1..=SIDE_MAX).contains(&side), || {
            format!("`msfa_output_resolution` ({side}) is from 1 to {SIDE_MAX}")
        });
    }
}

impl ConvBlock {
    /// Whether its input is added to its output.
    pub(super) fn adds_input(&self) -> bool {
        self.stride == 1 && self.from == self.to
    }

    fn check(&self, broken: &mut Broken) {
        let Self { from, to, stride, kind } = *self;
        broken.check([1, 2].contains(&stride), || format!("`stride` ({stride}) is 1 or 2"));
        let kernels = match kind {
            ConvBlockKind::Edge { kernel, inner } => {
                broken.size(&[("channels", from), ("inner channels", inner), ("places", kernel * kernel)]);
                broken.size(&[("inner channels", inner), ("out_chs", to)]);
                vec![kernel]
            }
            ConvBlockKind::Inverted { before, between, behind, inner } => {
                broken.size(&[("channels", from), ("inner channels", inner)]);
                broken.size(&[("inner channels", inner), ("out_chs", to)]);
                let kernels: Vec<usize> =
                    [before, between, behind].into_iter().filter(|kernel| *kernel > 0).collect();
                broken.check(stride == 1 || !kernels.is_empty(), || {
                    format!("a block with a stride of {stride} has a depthwise convolution")
                });
                kernels
            }
            ConvBlockKind::Attention { heads, head_dim, kernel, key_stride } => {
                broken.size(&[("channels", from), ("num_heads", heads), ("key_dim", head_dim)]);
                broken.size(&[("out_chs", to), ("num_heads", heads), ("key_dim", head_dim)]);
                broken.check(stride == 1, || format!("`stride` ({stride}) of attention is 1"));
                broken
                    .check([1, 2].contains(&key_stride), || format!("`kv_stride` ({key_stride}) is 1 or 2"));
                vec![kernel]
            }
        };
        for kernel in kernels {
            broken.check(kernel % 2 == 1 && kernel <= KERNEL_MAX, || {
                format!("a kernel's side ({kernel}) is odd and at most {KERNEL_MAX}")
            });
        }
    }
}
