//! A decoded recording.

use std::sync::Arc;

use omnibus_media::Audio;

use crate::media::Reserved;

/// Samples of a sound. Clones share them.
#[derive(Clone)]
pub(crate) struct Sound {
    pub(crate) audio: Arc<Audio>,
    /// Memory of open requests.
    pub(crate) _reserved: Arc<Reserved>,
}

impl Sound {
    /// In Hz.
    pub(crate) fn rate(&self) -> u32 {
        self.audio.rate()
    }

    /// All samples.
    pub(crate) fn samples(&self) -> &[f32] {
        self.audio.samples()
    }
}
