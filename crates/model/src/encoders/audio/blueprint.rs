//! The description of one audio encoder: plain data.

use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::{ConnectorStep, EncoderLayer, Filling};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::rules::Broken;

/// Most features of a window that is filled up to a fixed number.
const FEATURES_MAX: usize = 1 << 16;

/// How the audio encoder of one `model_type` is read.
pub struct AudioFamily {
    /// As in `config.json`.
    pub model_type: &'static str,
    /// The section that describes the encoder; none is the config itself.
    pub section: Option<&'static str>,
    /// Reads every field of the section, and of the others those that describe the encoder.
    pub read: fn(&Config) -> Result<AudioBlueprint, ConfigError>,
}

/// Everything that [`AudioEncoder`](super::AudioEncoder) needs of one checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioBlueprint {
    /// Mel bands of a frame.
    pub bands: usize,
    /// Width of the stream.
    pub hidden: usize,
    /// How frames become rows.
    pub stem: Stem,
    /// What becomes of frames behind the end of the sound.
    pub beyond_end: BeyondEnd,
    /// What is added to the rows.
    pub positions: AudioPositions,
    /// In order of execution.
    pub layers: Vec<AudioLayer>,
    /// Linear layers of layers clip what they read and what they give, each to ranges of its own (Gemma 4).
    pub clipped: bool,
    /// From the last layer's rows to features.
    pub connector: Vec<ConnectorStep>,
    /// Width of the features.
    pub features: usize,
    /// How a checkpoint becomes the tensors that this blueprint names, in order. Other tensors are the text model's.
    pub rewrites: Vec<WeightRewrite>,
}

/// How frames become rows, by convolutions with kernels of three.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stem {
    /// Two over frames, the second of which has a stride of two; each is followed by this (Whisper).
    Frames(Activation),
    /// Two over frames and bands with strides of two, each followed by a norm and a ReLU; then a linear layer (Gemma 3n,
    /// Gemma 4).
    #[allow(missing_docs)]
    Planes { channels: [usize; 2], norm: PlaneNorm, padding: FramePadding },
}

/// What a plane `[rows, bands, channels]` is normed over behind a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlaneNorm {
    /// The channels of each place (Gemma 4).
    Channels(Norm),
    /// Bands and channels of each row and of all rows before it (Gemma 3n).
    #[allow(missing_docs)]
    Cumulative { eps: f32 },
}

/// Where a convolution over frames reads zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePadding {
    /// One before the first frame and one behind the last (Gemma 4).
    Even,
    /// Two behind the last frame: a row begins with its own frames (Gemma 3n).
    Behind,
}

impl Stem {
    /// Rows of so many frames.
    pub fn rows(self, frames: usize) -> usize {
        match self {
            Self::Frames(_) => frames.div_ceil(2),
            Self::Planes { .. } => frames.div_ceil(2).div_ceil(2),
        }
    }
}

/// What becomes of frames that only fill a window up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeyondEnd {
    /// They are left out: the stem sees zeros there (Gemma 4).
    LeftOut,
    /// The stem sees them; layers do not (Gemma 3n, Qwen2-Audio).
    OnlyInStem,
    /// They are sound like the others (Whisper).
    Heard,
}

/// What is added to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioPositions {
    /// Nothing.
    Absent,
    /// A table with so many rows, as the checkpoint has it.
    #[allow(missing_docs)]
    Table { count: usize },
    /// Sines, then cosines, of frequencies that fall from 1 to 1/10000.
    Sinusoids,
}

/// One layer.
#[derive(Debug, Clone, PartialEq)]
pub enum AudioLayer {
    /// Attention between all rows of a window.
    Transformer(Box<EncoderLayer>),
    #[allow(missing_docs)]
    Conformer(Conformer),
}

/// A conformer layer: half a feed-forward part, local attention, a depthwise convolution, half a feed-forward part.
///
/// Source: arXiv 2005.08100, with the changes of the Universal Speech Model (arXiv 2303.01037).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conformer {
    /// Of every norm but the convolution's.
    pub norm_eps: f32,
    /// Of the convolution's norms.
    pub convolution_norm_eps: f32,
    /// Width of the feed-forward parts.
    pub width: usize,
    /// Non-linearity of the feed-forward parts and of the convolution.
    pub act: Activation,
    /// What the feed-forward parts give is multiplied by this.
    pub residual: f32,
    #[allow(missing_docs)]
    pub attention: LocalAttention,
    /// Rows that the convolution reads: one and those before it.
    pub kernel: usize,
}

/// Attention of chunks of rows to the rows around them, with positions relative to the query.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct LocalAttention {
    pub heads: usize,
    /// Rows of a chunk.
    pub chunk: usize,
    /// Rows of the past that have positions relative to a query, with its own.
    pub past: usize,
    /// Rows of the future that have positions relative to a query.
    pub future: usize,
    /// Of `past` and of `future`, the rows that a query sees.
    pub seen: [usize; 2],
    /// Keys are multiplied by this.
    pub key_scale: f32,
    /// Logits are `cap · tanh(logits / cap)`.
    pub logit_cap: f32,
}

impl AudioBlueprint {
    /// Checks what the types cannot say.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = Broken::default();
        broken.size(&[("mel bands", self.bands)]);
        broken.size(&[("hidden_size", self.hidden)]);
        broken.size(&[("text hidden_size", self.features)]);
        match self.stem {
            Stem::Frames(_) => {}
            Stem::Planes { channels: [first, second], .. } => {
                broken.size(&[("subsampling_conv_channels", first), ("subsampling_conv_channels", second)]);
            }
        }
        match self.positions {
            AudioPositions::Table { count } => broken.size(&[("max_source_positions", count)]),
            AudioPositions::Sinusoids => {
                broken.check(self.hidden >= 4 && self.hidden.is_multiple_of(2), || {
                    format!("sines and cosines fill the width of {}", self.hidden)
                });
            }
            AudioPositions::Absent => {}
        }
        for layer in &self.layers {
            match layer {
                AudioLayer::Transformer(layer) => {
                    broken.divides(("attention heads", layer.attention.heads), ("hidden_size", self.hidden));
                    layer.mlp.spec().check_rules(&mut broken);
                }
                AudioLayer::Conformer(layer) => {
                    let LocalAttention { heads, chunk, past, .. } = layer.attention;
                    broken.divides(("num_attention_heads", heads), ("hidden_size", self.hidden));
                    broken.size(&[("intermediate_size", layer.width)]);
                    broken.size(&[("attention_chunk_size", chunk), ("conv_kernel_size", layer.kernel)]);
                    broken.size(&[("attention_context_left", past)]);
                }
            }
        }
        self.check_connector(&mut broken);
        let rules = broken.into_rules();
        if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
    }

    fn check_connector(&self, broken: &mut Broken) {
        let joined = self.connector.iter().filter_map(|step| match step {
            ConnectorStep::JoinRows(rows)
            | ConnectorStep::MeanOfRows(rows)
            | ConnectorStep::FirstOfRows(rows) => Some(*rows),
            _ => None,
        });
        for rows in joined {
            broken.check((1..=64).contains(&rows), || format!("rows that become one ({rows}) are 1 to 64"));
        }
        let filled = self.connector.iter().filter_map(|step| match step {
            ConnectorStep::FillUp(filling) => Some(filling),
            _ => None,
        });
        for Filling { rows, vocabulary, token, .. } in filled {
            broken.check((1..=FEATURES_MAX).contains(rows), || {
                format!("features of a sound ({rows}) are 1 to {FEATURES_MAX}")
            });
            broken.check(token < vocabulary, || {
                format!("the token that fills up ({token}) is among the {vocabulary} of audio")
            });
        }
    }
}
