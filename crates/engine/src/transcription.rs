//! Speech to text: a sound is written down window by window, each as a generation of its own.
//!
//! Start at [`Handle::transcribe`](crate::Handle::transcribe). Whisper reads a window by cross attention and writes tokens of
//! time, which say where the next window begins ([`segments`]); other models that hear are asked in a conversation.
//!
//! Invariant: windows of a sound are generated one after the other; requests of other clients go on beside them.

mod alignment;
mod chat;
mod languages;
mod quality;
mod segments;
mod start;
mod transcriber;
mod windows;
mod words;

pub use languages::Language;
pub use transcriber::TranscriptionStream;

use crate::error::Failure;
use crate::event::Usage;
use crate::media::MediaItem;
use crate::request::Request;

/// A sound to write down.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcription {
    /// Its id, model, tenant, priority and time limit are those of each window's generation; other fields are replaced.
    pub request: Request,
    /// A file of sound.
    pub audio: MediaItem,
    #[allow(missing_docs)]
    pub task: SpeechTask,
    /// The code of the language that is spoken, as `en`. `None`: the model finds out.
    pub language: Option<String>,
    /// A text that may stand before what is spoken: names and spellings.
    pub prompt: Option<String>,
    /// 0 takes the most likely tokens, and tries again with higher ones where the result looks wrong.
    pub temperature: f32,
    /// What must have times of the model's own.
    pub times: SpeechTimes,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechTask {
    /// What is spoken.
    Transcribe,
    /// What is spoken, in English.
    Translate,
}

/// What must have times. A model that gives none is refused; the field of the API that needs them is for the error, as the
/// API spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SpeechTimes {
    /// Times of windows are enough.
    Optional,
    /// Segments.
    OfSegments { field: &'static str },
    /// Segments and each of their words.
    OfWords { field: &'static str },
}

/// One item of a transcription.
#[derive(Debug, Clone, PartialEq)]
pub enum TranscriptionEvent {
    /// The next segment.
    Segment(SpeechSegment),
    /// The last event of a transcription that succeeded.
    Finished(SpeechSummary),
    /// The last event of a transcription that failed.
    Failed(Failure),
}

/// Text between two times.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechSegment {
    /// Counted from 0.
    pub number: usize,
    /// Where its window begins, in seconds.
    pub window_s: f64,
    /// In seconds from the beginning of the sound.
    pub start_s: f64,
    /// End, in seconds from the beginning of the recording.
    pub end_s: f64,
    /// With the space that the model writes before it.
    pub text: String,
    /// Of the text and its times.
    pub tokens: Vec<u32>,
    /// With [`SpeechTimes::OfWords`].
    pub words: Vec<SpeechWord>,
    /// Of its window, as generated.
    pub quality: WindowQuality,
}

/// A word, and when it is spoken.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechWord {
    /// Without marks and spaces around it.
    pub text: String,
    /// In seconds from the beginning of the sound.
    pub start_s: f64,
    /// End, in seconds from the beginning of the recording.
    pub end_s: f64,
}

/// What a window's generation says about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowQuality {
    /// The temperature that the result was kept of.
    pub temperature: f32,
    /// Mean log-probability of its tokens.
    pub avg_logprob: f32,
    /// Bytes of the text over those of its compressed form: repetitions have a high one.
    pub compression_ratio: f32,
    /// Probability that nothing is spoken, of models that say so.
    pub no_speech_prob: f32,
}

/// What is known of the whole sound.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechSummary {
    /// What is spoken, as given or as found.
    pub language: Option<Language>,
    /// How long the sound is.
    pub duration_s: f64,
    /// Of all windows.
    pub usage: Usage,
}
