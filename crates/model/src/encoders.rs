//! Encoders of pictures and of audio: to the feature rows that take the place of tokens in a prompt.
//!
//! ```text
//! config.json ──encoders::read──> EncoderBlueprint ──manifest──> the tensors it needs
//! Encoder::encode(EncoderInput) -> Features
//! ```
//!
//! An encoder is data, like the text model: to add a family, write `encoders/families/<name>.rs` with one `read`
//! function and add its row to [`ENCODERS`].
//!
//! Invariant: one picture at a time. Its features depend on its own patches and not on where it stands in a prompt, so
//! they can be cached by content.

pub mod audio;
mod blueprint;
mod canvas;
mod connector;
mod convolutions;
mod encoder;
mod families;
mod filling;
mod footprint;
mod grid;
mod layer;
mod manifest;
mod patches;
mod perceiver;
mod pooling;
mod positions;
mod rotary;
mod square_merger;
mod tiles;
mod weights;

use serde_json::{Map, Value};

use crate::config::{Config, ConfigError};
pub use audio::{
    AudioBlueprint, AudioEncoder, AudioFamily, AudioInput, AudioLayer, AudioPositions, BeyondEnd, Conformer,
    FramePadding, LocalAttention, PlaneNorm, Stem,
};
pub use blueprint::{
    ClassToken, ConnectorStep, Deepstack, EncoderAttention, EncoderBlueprint, EncoderLayer, Filling,
    LayerScale, Linears, MergedElements, PatchEmbedding, PatchLayout, PatchOrder, PatchPairs, Perceiver,
    PixelRange, PositionTable, Rotary2d, RotaryAxes, Sampling, Separators, SquareMerger, TakenFrom, Tiles,
};
pub use convolutions::{ConvBlock, ConvBlockKind, ConvTower, Fusion};
pub use encoder::{Encoder, Features};
pub use families::{AUDIO_ENCODERS, ENCODERS};
pub use grid::{Canvas, EncoderInput, Grid, Layout, View};

/// How the encoder of one `model_type` is read.
pub struct EncoderFamily {
    /// As in `config.json`.
    pub model_type: &'static str,
    /// Sections of the config that are the encoder's alone. Without the first, a checkpoint has no encoder.
    pub sections: &'static [&'static str],
    /// Reads every field of these sections, and of the others those that describe the encoder.
    pub read: fn(&Config) -> Result<EncoderBlueprint, ConfigError>,
}

/// The picture encoder of a checkpoint's `config.json`; `None` if its family has none here, or the config has no
/// section for it. Fails if a field of that section is not read.
pub fn read(fields: &Map<String, Value>) -> Result<Option<EncoderBlueprint>, ConfigError> {
    let cfg = Config::new(fields);
    let model_type: String = cfg.req("model_type")?;
    let family = ENCODERS.iter().find(|family| family.model_type == model_type);
    let Some(family) = family else { return Ok(None) };
    let sections = family.sections.iter().map(|name| cfg.section(name));
    let sections = sections.collect::<Result<Vec<_>, _>>()?;
    if !matches!(sections.first(), Some(Some(_))) {
        return Ok(None);
    }
    let blueprint = (family.read)(&cfg)?;
    sections.into_iter().flatten().try_for_each(Config::finish)?;
    blueprint.validate()?;
    Ok(Some(blueprint))
}
