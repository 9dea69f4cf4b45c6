//! From `config.json` and tensors to logits.
//!
//! ```text
//! config.json ──families──> Blueprint ──manifest──> the tensors it needs
//! checkpoint  ──rewrite───> those tensors ──Model::build──> Model
//! Model::forward(Batch, &mut KvCache) -> logits
//! ```
//!
//! Start at [`families::read`] for what a model is and at [`Model::forward`] for what it does.
//!
//! Invariant: knows no requests, no clock, no HTTP. A family is data; `blocks`, `mixers`, `mlps` and `decoder` compute
//! without a branch on a family, and name no backend: `ops` has one implementation of each operation per backend.

mod batch;
mod blocks;
mod blueprint;
mod config;
pub mod convert;
mod cross_weights;
mod decoder;
mod dims;
mod draft_head;
mod draft_states;
pub mod encoders;
mod environment;
mod error;
pub mod families;
mod forward;
mod input_squares;
pub mod kernel_check;
mod kernel_choice;
mod kv_cache;
mod kv_format;
mod manifest;
mod mixers;
mod mlps;
pub mod mrope;
mod norm;
mod ops;
mod params;
mod pattern;
mod pipeline;
mod prompt_cache;
mod quantization;
mod rewrite;
mod rope;
mod rules;
mod shard;
mod spec;
mod step_graphs;
mod take_rows;
pub mod weights;

pub use batch::{
    AdapterId, Batch, CrossRows, CrossStates, FeatureRows, HiddenPlace, HiddenRows, MultimodalRows, Segment,
    SpanRuns, UnattendedRows, span_reach,
};
pub use blueprint::{
    AlternatingUpdates, BesideSum, Blueprint, DraftHeadInput, Finish, Head, HeadStates, HyperConnections,
    LayerSpec, LearnedPositions, MaskedHead, MediaVocabulary, Names, NormPlacement, Passes, PerLayerInputs,
    Residual, RotatedModule, SpanRule, Stage, StreamKind, TokenTable,
};
pub use config::{Config, ConfigError, IGNORABLE, Limit};
pub use cross_weights::{CrossHead, CrossWeights};
pub use decoder::{LaunchStats, Loading, Model, PassOutput, PassShape, RowLogits, StepLaunches};
pub use dims::{DimFields, Dims};
pub use draft_head::{DraftBlock, DraftHead, DraftHeadOutput};
pub use draft_states::DraftStates;
pub use error::Error;
pub use forward::KvPath;
pub use input_squares::InputSquares;
pub use kernel_choice::{GpuKernel, KernelChoice};
pub use kv_cache::{BlockBytes, BlockExport, KvCache, KvCacheGroup, VisibleTo};
pub use kv_format::{KvStorage, UnquantizedPrefix};
pub use manifest::{Manifest, TensorRole};
pub use mixers::{
    Absent, Attention, AttentionSpan, Bidirectional, BlockSparse, Candidates, ChannelMix,
    CompressedAttention, Compressor, ConvAttention, ConvGate, ConvReach, CrossAttention, Decay,
    DeltaAttention, DeltaGate, DistanceBuckets, DistanceScores, DistanceTerm, EntryIndexer, EntryReads,
    GatedDelta, HeadGate, IndexedAttention, Indexer, KeyConv, KeyReads, KeySource, LatentAttention,
    Lightning, LoopAttention, Mamba1, Mamba2, Mixer, NgramEmbedding, NormAt, NormOver, OpenGroup, OutNorm,
    OutputGate, Parallel, PerPosition, QkNorm, RgLru, RowCache, SelectiveMamba2, ShortConv, StepNorms,
    Temperature, TimeMix, TokenHistory, TokenShift, WkvState,
};
pub use mlps::{
    ACTIVATIONS, DenseAndRouted, Expert, ExpertChoice, GatedMlp, Latent, LatentNorms, LinearMlp, Mlp, Moe,
    NormedMlp, PlainMlp, ROUTE_SCORES, Router, SharedExpert, SharedGate, Weighs,
};
pub use mlx::{Activation, RotaryPairing, RouteGroups, RouteScores};
pub use norm::Norm;
pub use ops::Kernels;
pub use pattern::{Captures, Pattern};
pub use pipeline::PipelineStage;
pub use prompt_cache::{BlockImport, PromptCache};
pub use quantization::{Foreign, Quantization, QuantizationChoice, TernaryScale, ZeroPoints};
pub use rewrite::{WeightRewrite, When};
pub use rope::{Position, Rope, RotaryAxes, RotarySections, Scaling, SectionLayout};
pub use shard::{Exchange, ModelPart, Shard};
pub use take_rows::take_rows;
pub use weights::{LoadError, RandomWeights, Source, Weights};
