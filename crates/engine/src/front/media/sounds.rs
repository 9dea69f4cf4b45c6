//! Sounds of transcriptions: decoded whole, and prepared window by window.

use std::sync::Arc;

use omnibus_media::{Audio, Limits, decode_audio};

use super::{MediaReader, PartError, PreparedContent};
use crate::error::Failure;
use crate::media::{MediaItem, Sound};

/// Longest sound, in seconds: 460 MB of samples at 16 kHz.
const SECONDS_MAX: f64 = 2.0 * 3600.0;
/// Most recordings that are decoded at once.
pub(super) const RECORDINGS_MAX: usize = 2;

/// A window of sound, as an encoder takes it. Clones share it.
#[derive(Clone)]
pub(crate) struct SpeechWindow(pub(in crate::front) PreparedContent);

impl MediaReader {
    /// The samples of a file at the model's rate, within the memory of open requests.
    pub(crate) fn sound(&self, item: &MediaItem) -> Result<Sound, Failure> {
        let field = item.field.as_str();
        let fail = |message: String| Failure::bad_request(field, format!("`{field}`: {message}"));
        let rate = self.audio.as_ref().ok_or_else(|| super::deaf(field, true))?.rate();
        let _file = self.files.reserve([item])?;
        let decoder = self.recordings.acquire();
        let limits = Limits { seconds: SECONDS_MAX, ..self.limits };
        let files = item.source.files().map_err(|error| fail(error.to_string()))?;
        let files = files.ok_or_else(|| fail("it is not a file".to_owned()))?;
        let audio = decode_audio(files.first(), &limits, rate).map_err(|error| fail(error.to_string()))?;
        let reserved = self.budget.reserve(size_of_val(audio.samples()) as u64);
        let reserved = reserved.ok_or(Failure::Busy { retry_after_s: 1 })?;
        drop(decoder);
        Ok(Sound { audio: Arc::new(audio), _reserved: Arc::new(reserved) })
    }

    /// What the audio encoder takes of a window's samples.
    pub(in crate::front) fn window(&self, samples: &[f32]) -> Result<SpeechWindow, Failure> {
        let fail = |message: String| Failure::bad_request("file", format!("`file`: {message}"));
        let processor = self.audio.as_ref().ok_or_else(|| super::deaf("file", true))?;
        let audio =
            Audio::new(processor.rate(), samples.to_vec()).map_err(|error| fail(error.to_string()))?;
        let prepared = self.window_of(processor, &audio).map_err(|error| match error {
            PartError::Unusable(message) => fail(message),
            PartError::Busy => Failure::Busy { retry_after_s: 1 },
        })?;
        let content = prepared.contents.into_iter().next();
        content.map(SpeechWindow).ok_or_else(|| fail("the processor makes no spectrum".to_owned()))
    }

    /// Most samples of a window.
    pub(crate) fn window_samples(&self) -> usize {
        self.audio.as_ref().map_or(1, |processor| processor.window_samples().max(1))
    }
}
