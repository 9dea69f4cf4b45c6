//! The description of one picture encoder: plain data.

use super::ConvTower;
use crate::config::ConfigError;
use crate::mlps::Mlp;
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::rules::Broken;
use crate::{Activation, RotaryPairing};

/// Everything that [`Encoder`](super::Encoder) needs of one checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderBlueprint {
    /// Width of the stream.
    pub hidden: usize,
    /// How pixels become rows. Below convolutions, only its size counts: so many pixels on a side become one place of the map
    /// that rows are made of.
    pub patches: PatchEmbedding,
    /// A tower of convolutions, which makes the rows in the place of patches (Gemma 3n).
    pub convolutions: Option<ConvTower>,
    /// Which patch stands where.
    pub order: PatchOrder,
    /// Applied to the rows of patches alone.
    pub patch_norm: Option<Norm>,
    /// A learned row of each view, which is left out of the features.
    pub class_token: ClassToken,
    /// Learned positions that are added to the rows.
    pub positions: PositionTable,
    /// Applied before the first layer.
    pub input_norm: Option<Norm>,
    /// In order of execution. Layers that a checkpoint has behind them are not read.
    pub layers: Vec<EncoderLayer>,
    /// Linear layers of layers clip what they read and what they give, each to ranges of its own (Gemma 4).
    pub clipped: bool,
    /// How a picture's tiles are encoded together, if they are.
    pub tiles: Option<Tiles>,
    /// Behind a layer, squares of two by two rows become one (MiniCPM-V 4.6).
    pub squares: Option<SquareMerger>,
    /// Behind which layers rows are taken that become one, with all of their elements in this order; if none are named,
    /// behind the last.
    pub joined: Vec<usize>,
    /// Side of the windows that some layers attend within, in merged patches.
    pub window: Option<usize>,
    /// Applied after the last layer.
    pub output_norm: Option<Norm>,
    /// From the last layer's rows to features.
    pub connector: Vec<ConnectorStep>,
    /// Learned vectors between the features of a canvas.
    pub separators: Separators,
    /// From features in their order, learned vectors among them, to those of the text model's width.
    pub projection: Vec<ConnectorStep>,
    /// The embedding of the token in whose place features stand is added to each (Molmo 2).
    pub placeholder: bool,
    /// Features of earlier layers, which join the stream of the text model's first layers.
    pub deepstack: Vec<Deepstack>,
    /// Width of the features: that of the text model's stream.
    pub features: usize,
    /// How a checkpoint becomes the tensors that this blueprint names, in order. Other tensors are the text model's.
    pub rewrites: Vec<WeightRewrite>,
}

/// How pixels become rows: a product of each patch, which is the convolution whose stride is its kernel's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchEmbedding {
    /// Colours.
    pub channels: usize,
    /// Frames of a patch; a picture is its own second frame.
    pub frames: usize,
    /// Side, in pixels.
    pub size: usize,
    #[allow(missing_docs)]
    pub bias: bool,
    /// How weights order the numbers of a patch.
    pub layout: PatchLayout,
    /// What pixels are.
    pub range: PixelRange,
}

/// How weights order the numbers of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchLayout {
    /// Colour by colour, frame by frame, row by row.
    ColoursFirst,
    /// Row by row, the colours of a pixel next to each other.
    ColoursLast,
}

/// What pixels are, as a processor gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelRange {
    /// Normalized; taken as they are.
    Normalized,
    /// From 0 to 1; taken as from −1 to 1 (Gemma 4).
    Unit,
}

/// A learned row of each view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassToken {
    /// None.
    Absent,
    /// Before the patches (CLIP).
    First,
    /// Behind them (Llama 4).
    Last,
}

impl ClassToken {
    /// How many rows.
    pub fn rows(self) -> usize {
        match self {
            Self::Absent => 0,
            Self::First | Self::Last => 1,
        }
    }
}

impl PatchEmbedding {
    /// Of single frames with three colours.
    pub fn new(size: usize, bias: bool) -> Self {
        let (layout, range) = (PatchLayout::ColoursFirst, PixelRange::Normalized);
        Self { channels: 3, frames: 1, size, bias, layout, range }
    }

    /// Numbers of one patch.
    pub fn elements(&self) -> usize {
        self.channels * self.frames * self.size * self.size
    }
}

/// The order of a view's patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOrder {
    /// Row by row.
    Rows,
    /// Squares with so many patches on a side, row by row, and row by row in each of them: what is merged is adjacent.
    Squares(usize),
}

/// Learned positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PositionTable {
    /// None.
    Absent,
    /// One for each row of a view, the class token's among them.
    PerRow {
        /// How many.
        count: usize,
    },
    /// A square with so many on a side, sampled at the places of the patches.
    Square {
        /// Positions on a side.
        side: usize,
        #[allow(missing_docs)]
        sampling: Sampling,
    },
    /// So many for columns, then so many for rows; a patch has the sum of two (Gemma 4).
    Axes {
        #[allow(missing_docs)]
        count: usize,
    },
}

/// How a square of positions becomes a grid of another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// The position of the square's cell that a patch begins in (Idefics).
    Nearest,
    /// Bilinear; the first and the last patch are at the first and the last position (Qwen3-VL).
    AlignedCorners,
    /// Bilinear between centres, over as many positions as a patch covers (Siglip 2).
    Antialiased,
    /// Bilinear between centres (PaddleOCR-VL).
    Bilinear,
    /// Bicubic between centres, with a = −0.75 (MoonViT, GLM-4V). Source: Keys 1981.
    Bicubic,
}

/// One pre-norm layer.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderLayer {
    /// Before attention and before the MLP.
    pub norm: Norm,
    /// Of what attention and MLP add to the stream (Gemma 4).
    pub after: Option<Norm>,
    #[allow(missing_docs)]
    pub attention: EncoderAttention,
    #[allow(missing_docs)]
    pub mlp: Mlp,
    /// What attention and MLP add to the stream is multiplied by this.
    pub scales: LayerScale,
}

/// Factors of what a layer adds to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerScale {
    /// 1.
    None,
    /// Learned vectors (InternViT).
    Vectors,
    /// The hyperbolic tangents of learned numbers (Llama 3.2 Vision).
    Gates,
}

/// A picture's tiles, whose rows all attend to each other (Llama 3.2 Vision). A picture with fewer tiles than the most is
/// filled up, and so are the rows of each tile, with rows of zeros; rows that fill up do not attend to each other. Features
/// are all rows of its own tiles, the class tokens' among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiles {
    /// In how many shapes tiles may lie. Each has embeddings of its own, from number 1.
    pub shapes: usize,
    /// Most tiles of a picture.
    pub most: usize,
    /// A tile has a multiple of so many rows.
    pub multiple: usize,
    /// Behind so many layers, a norm, and embeddings of the tiles join once more.
    pub local_layers: usize,
    #[allow(missing_docs)]
    pub norm: Norm,
}

/// Rows of squares of two by two attend to each other; then their elements pass through a norm and two linear layers, whose
/// output is added to the rows' mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SquareMerger {
    /// Behind which layer.
    pub layer: usize,
    #[allow(missing_docs)]
    pub heads: usize,
    /// Between the linear layers.
    pub width: usize,
    #[allow(missing_docs)]
    pub act: Activation,
    /// Before attention and before the linear layers.
    pub norm: Norm,
}

/// Learned vectors between features, as wide as what the connector gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separators {
    /// None.
    None,
    /// One behind each row of a canvas, and behind a video (LLaVA-NeXT).
    Newline,
    /// The canvas comes first. One vector stands behind each row of it and of the whole, another between the two (Phi-3
    /// Vision).
    CanvasFirst,
}

/// Attention in both directions between the patches of one view.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct EncoderAttention {
    pub heads: usize,
    /// Which linear layers have a bias.
    pub biases: Linears,
    pub rotary: Option<Rotary2d>,
    /// Attends within the encoder's windows.
    pub windowed: bool,
    /// RMS norm of each head's queries and keys, with this epsilon.
    pub qk_norm: Option<f32>,
    /// RMS norm of each head's values without a weight, with this epsilon.
    pub value_norm: Option<f32>,
    /// Scores are multiplied by this before the softmax, if not by `1/√head_dim`.
    pub scale: Option<f32>,
}

impl EncoderAttention {
    /// With biases, without positions.
    pub fn new(heads: usize) -> Self {
        let [qk_norm, value_norm, scale] = [None; 3];
        Self { heads, biases: Linears::All, rotary: None, windowed: false, qk_norm, value_norm, scale }
    }
}

/// Linear layers of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linears {
    /// None.
    No,
    /// All.
    All,
    /// That of the output only.
    Output,
}

/// Rotation of queries and keys by row and column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary2d {
    /// Rope theta.
    pub base: f32,
    /// Which pairs turn by the row, and which by the column.
    pub axes: RotaryAxes,
    /// Which elements form a pair.
    pub pairs: PatchPairs,
}

/// Which elements of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchPairs {
    /// As in text.
    OfHead(RotaryPairing),
    /// Halves of each axis' half of a head (Gemma 4).
    HalvesOfAxes,
}

/// Which pairs of a head turn by the row, and which by the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryAxes {
    /// The first half by the row and the second by the column, both with the same frequencies (Qwen2-VL).
    SameFrequencies,
    /// The first half by the row and the second by the column, with the frequencies of even pairs for rows and those of
    /// odd pairs for columns (Pixtral).
    AlternateFrequencies,
    /// The first half by the column and the second by the row, both with the same frequencies (Gemma 4).
    ColumnsFirst,
    /// The first half by the column and the second by the row, counted from 1; a class token is at 0 (Llama 4).
    ColumnsFirstFromOne,
    /// Even pairs by the column and odd ones by the row, with the same frequencies (MoonViT).
    InTurn,
}

/// One step from rows to features. Names are below `encoder.connector` or `encoder.deepstack.N`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConnectorStep {
    /// Squares with so many patches on a side become one row of all their elements. The last ones are filled up with zeros.
    Merge {
        /// Patches on a side.
        side: usize,
        #[allow(missing_docs)]
        elements: MergedElements,
    },
    /// Squares with so many patches on a side become their mean.
    Pool {
        /// Patches on a side.
        side: usize,
    },
    /// So many rows, one after the other, become one row of all their elements. The last ones are filled up with zeros.
    JoinRows(usize),
    /// So many rows, one after the other, become their mean. Rows that are left over are dropped.
    MeanOfRows(usize),
    /// Of so many rows, one after the other, the first.
    FirstOfRows(usize),
    /// Rows of one token's embedding stand behind the last.
    FillUp(Filling),
    /// A norm.
    #[allow(missing_docs)]
    Norm { name: &'static str, norm: Norm },
    /// A linear layer to this width.
    #[allow(missing_docs)]
    Linear { name: &'static str, width: usize, bias: bool },
    /// A non-linearity.
    Act(Activation),
    /// The first half of each row times this of the second.
    GateHalf(Activation),
    /// This of the linear layer `gate_proj`, times the linear layer `up_proj`, both of this width.
    #[allow(missing_docs)]
    Gated { act: Activation, width: usize, bias: bool },
    /// Each feature attends from the mean of its pool of rows to all of them, with biases. Its input layers give
    /// `heads · head_dim`, its output layer `width`.
    #[allow(missing_docs)]
    AttentionPool { heads: usize, head_dim: usize, width: usize },
    /// So many learned rows attend to a view's rows and to themselves, and become its features.
    Perceiver(Perceiver),
    /// A factor.
    Scale(f32),
    /// The learned vector `shift` is subtracted, and what is left multiplied by the vector `scale`.
    Standardize,
}

/// What fills rows up to a fixed number: the normed embedding of a token, of a vocabulary beside the text model's (Gemma 3n).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filling {
    /// Rows with those that fill up.
    pub rows: usize,
    /// How many embeddings `embedding` has.
    pub vocabulary: usize,
    /// Whose embedding it is.
    pub token: usize,
    /// `hard_embedding_norm`.
    pub norm: Norm,
}

/// Learned rows that attend to those of a view, layer by layer. All layers are pre-norm, without biases.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Perceiver {
    /// How many rows come out of each view.
    pub latents: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub norm: Norm,
    /// Of the gated MLPs.
    pub width: usize,
    pub act: Activation,
}

/// The order of a merged row's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergedElements {
    /// Patch by patch.
    PatchByPatch,
    /// Channel by channel, the patches' elements of each next to each other (Mistral 3).
    ChannelByChannel,
}

/// Features of one layer's output.
#[derive(Debug, Clone, PartialEq)]
pub struct Deepstack {
    /// Behind which layer.
    pub layer: usize,
    /// From its rows to features.
    pub connector: Vec<ConnectorStep>,
}

/// Which layer's rows become features, as configs say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenFrom(pub i64);

impl TakenFrom {
    /// How many of `layers` compute. `-1` is the last layer's output, `0` what the first one reads.
    pub fn layers(self, layers: usize) -> Result<usize, ConfigError> {
        let count = layers as i64;
        let taken = if self.0 < 0 { count + 1 + self.0 } else { self.0 };
        let taken = (0..=count).contains(&taken).then_some(taken as usize);
        taken.ok_or_else(|| ConfigError::Inconsistent {
            rules: vec![format!("`vision_feature_layer` ({}) is one of {layers} layers", self.0)],
        })
    }
}

impl EncoderBlueprint {
    /// Layers over rows of patches, without positions, other norms and a connector. `rewrites`: see
    /// [`Self::rewrites`].
    pub(super) fn new(
        hidden: usize,
        patches: PatchEmbedding,
        layers: Vec<EncoderLayer>,
        features: usize,
        rewrites: Vec<WeightRewrite>,
    ) -> Self {
        Self {
            hidden,
            patches,
            convolutions: None,
            order: PatchOrder::Rows,
            patch_norm: None,
            class_token: ClassToken::Absent,
            positions: PositionTable::Absent,
            input_norm: None,
            layers,
            tiles: None,
            squares: None,
            joined: Vec::new(),
            window: None,
            clipped: false,
            output_norm: None,
            connector: Vec::new(),
            separators: Separators::None,
            projection: Vec::new(),
            placeholder: false,
            deepstack: Vec::new(),
            features,
            rewrites,
        }
    }

    /// Checks what the types cannot say.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = Broken::default();
        let PatchEmbedding { channels, frames, size, .. } = self.patches;
        broken.size(&[("num_channels", channels), ("temporal_patch_size", frames), ("patch_size", size)]);
        broken.size(&[("hidden_size", self.hidden)]);
        broken.size(&[("text hidden_size", self.features)]);
        if let Some(tower) = &self.convolutions {
            tower.check(&mut broken);
        }
        for layer in &self.layers {
            let heads = layer.attention.heads;
            broken.divides(("num_attention_heads", heads), ("hidden_size", self.hidden));
            let quarter = if layer.attention.rotary.is_some() { 4 } else { 1 };
            let holds = heads > 0 && (self.hidden / heads).is_multiple_of(quarter);
            broken.check(holds, || format!("a head's width ({} / {heads}) is a multiple of 4", self.hidden));
            layer.mlp.spec().check_rules(&mut broken);
        }
        if let Some(squares) = self.squares {
            broken.divides(("num_attention_heads", squares.heads), ("hidden_size", self.hidden));
            broken.size(&[("merged intermediate_size", squares.width)]);
        }
        for step in &self.connector {
            if let ConnectorStep::Perceiver(perceiver) = step {
                let Perceiver { latents, layers, heads, kv_heads, head_dim, .. } = *perceiver;
                broken.size(&[("resampler_n_latents", latents), ("resampler_depth", layers)]);
                broken.size(&[("resampler_head_dim", head_dim)]);
                broken.divides(("num_key_value_heads", kv_heads), ("resampler_n_heads", heads));
            }
        }
        if let Some(Tiles { shapes, most, multiple, .. }) = self.tiles {
            broken.size(&[("supported_aspect_ratios", shapes), ("max_num_tiles", most), ("rows", multiple)]);
            broken.check(most <= 64, || format!("`max_num_tiles` ({most}) is at most 64"));
        }
        let count = self.layers.len();
        let taken = self.joined.iter().copied().chain(self.squares.map(|squares| squares.layer));
        for layer in taken {
            broken.check(layer < count, || format!("layer {layer} is one of {count}"));
        }
        for side in self.sides() {
            broken
                .check((1..=64).contains(&side), || format!("`spatial_merge_size` ({side}) is from 1 to 64"));
        }
        match self.positions {
            PositionTable::Absent => {}
            PositionTable::PerRow { count } => broken.size(&[("number of positions", count)]),
            PositionTable::Square { side, .. } => broken.size(&[("positions on a side", side); 2]),
            PositionTable::Axes { count } => broken.size(&[("number of positions", count), ("axes", 2)]),
        }
        let rules = broken.into_rules();
        if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
    }

    /// Width of rows behind the connector.
    pub(super) fn connected(&self) -> usize {
        let width = self.hidden * self.joined.len().max(1);
        self.connector.iter().fold(width, |width, step| match *step {
            ConnectorStep::Merge { side, .. } => width * side * side,
            ConnectorStep::JoinRows(rows) => width * rows,
            ConnectorStep::GateHalf(_) => width / 2,
            ConnectorStep::Gated { width, .. }
            | ConnectorStep::AttentionPool { width, .. }
            | ConnectorStep::Linear { width, .. } => width,
            ConnectorStep::Pool { .. }
            | ConnectorStep::MeanOfRows(_)
            | ConnectorStep::FirstOfRows(_)
            | ConnectorStep::FillUp(_)
            | ConnectorStep::Norm { .. }
            | ConnectorStep::Act(_)
            | ConnectorStep::Perceiver(_)
            | ConnectorStep::Scale(_)
            | ConnectorStep::Standardize => width,
        })
    }

    /// Sides of the squares that are merged or pooled, and of windows.
    fn sides(&self) -> impl Iterator<Item = usize> {
        let steps = self.connector.iter().chain(&self.projection);
        let steps = steps.chain(self.deepstack.iter().flat_map(|deep| &deep.connector));
        let sides = steps.filter_map(|step| match step {
            ConnectorStep::Merge { side, .. } | ConnectorStep::Pool { side } => Some(*side),
            ConnectorStep::Norm { .. }
            | ConnectorStep::Linear { .. }
            | ConnectorStep::JoinRows(_)
            | ConnectorStep::MeanOfRows(_)
            | ConnectorStep::FirstOfRows(_)
            | ConnectorStep::FillUp(_)
            | ConnectorStep::Act(_)
            | ConnectorStep::GateHalf(_)
            | ConnectorStep::Gated { .. }
            | ConnectorStep::AttentionPool { .. }
            | ConnectorStep::Perceiver(_)
            | ConnectorStep::Scale(_)
            | ConnectorStep::Standardize => None,
        });
        let order = match self.order {
            PatchOrder::Rows => None,
            PatchOrder::Squares(side) => Some(side),
        };
        sides.chain(order).chain(self.window)
    }
}
