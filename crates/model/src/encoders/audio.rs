//! Encoders of audio: from a log-mel spectrum to the feature rows that take the place of tokens in a prompt, or that a
//! decoder reads by cross attention.
//!
//! To add a family, write `encoders/families/<name>.rs` with one `read` function and add its row to
//! [`AUDIO_ENCODERS`].
//!
//! Invariant: one window of sound at a time. Its features depend on its own frames only, so they can be cached by content.

mod blueprint;
mod conformer;
mod encoder;
mod manifest;
mod plane_norm;
mod relative;
mod stem;
mod weights;

use serde_json::{Map, Value};

use super::AUDIO_ENCODERS;
use crate::config::{Config, ConfigError};
pub use blueprint::{
    AudioBlueprint, AudioFamily, AudioLayer, AudioPositions, BeyondEnd, Conformer, FramePadding,
    LocalAttention, PlaneNorm, Stem,
};
pub use encoder::{AudioEncoder, AudioInput};
pub(super) use manifest::KERNEL;

/// The audio encoder of a checkpoint's `config.json`; `None` if its family has none here, or the config lacks its section.
/// Fails if a field of that section is not read.
pub fn read(fields: &Map<String, Value>) -> Result<Option<AudioBlueprint>, ConfigError> {
    let cfg = Config::new(fields);
    let model_type: Option<String> = cfg.opt("model_type")?;
    let family = AUDIO_ENCODERS.iter().find(|family| Some(family.model_type) == model_type.as_deref());
    let Some(family) = family else { return Ok(None) };
    let section = family.section.map(|name| cfg.section(name)).transpose()?;
    if let Some(None) = section {
        return Ok(None);
    }
    let blueprint = (family.read)(&cfg)?;
    if let Some(section) = section.flatten() {
        section.finish()?;
    }
    blueprint.validate()?;
    Ok(Some(blueprint))
}
