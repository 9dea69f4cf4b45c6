//! `POST /v1/audio/transcriptions` and `/translations`: OpenAI's form fields and our extensions.

use bytes::Bytes;
use serde::Serialize;

use super::fields::{Field, harmless, honoured, refused};
use super::form::FormFields;
use crate::error::ApiError;

/// Fields of both routes.
pub const FIELDS: &[Field] = &[
    honoured(
        "file",
        "a recording: WAV, AIFF, MP3, AAC, FLAC, Ogg Vorbis, MP4/M4A or Matroska/WebM, up to 2 hours",
    ),
    honoured("model", "a served name; absent is the default model"),
    honoured("language", "the code of the language that is spoken, as `en`; absent: the model finds out"),
    honoured("prompt", "a text that may stand before what is spoken: names and spellings"),
    honoured(
        "response_format",
        "`json`, `text`, `srt`, `verbose_json` or `vtt`; those with times need a model that gives them",
    ),
    honoured("temperature", "0 to 1; with 0 doubtful results are tried again at higher temperatures"),
    honoured("seed", "the same seed gives the same text"),
    honoured(
        "timestamp_granularities[]",
        "`segment` (as if absent), `word`, or both, with `verbose_json`; words need `alignment_heads` in the checkpoint's \
         generation_config.json",
    ),
    honoured("timestamp_granularities", "the same"),
    honoured("stream", "true streams the text of each segment as it is written; with `json` or `text`"),
    honoured("priority", "higher runs first; 0 when absent"),
    harmless("chunking_strategy", "recordings are divided where the model's times, or silence, allow it"),
    harmless("user", "clients are distinguished by their API key"),
    refused("include[]", "log-probabilities are in `avg_logprob` of `verbose_json`"),
    refused("known_speaker_names[]", "speakers are not distinguished"),
    refused("known_speaker_references[]", "speakers are not distinguished"),
];

/// Longest name of a language.
const LANGUAGE_BYTES_MAX: usize = 64;

/// A request, read and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptionRequest {
    #[allow(missing_docs)]
    pub file: Bytes,
    #[allow(missing_docs)]
    pub model: Option<String>,
    #[allow(missing_docs)]
    pub language: Option<String>,
    #[allow(missing_docs)]
    pub prompt: Option<String>,
    #[allow(missing_docs)]
    pub format: TranscriptFormat,
    #[allow(missing_docs)]
    pub temperature: f32,
    #[allow(missing_docs)]
    pub seed: Option<u64>,
    #[allow(missing_docs)]
    pub priority: i32,
    /// Whether the text is streamed.
    pub stream: bool,
}

/// How the text is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TranscriptFormat {
    Json,
    Text,
    Srt,
    VerboseJson(Timed),
    Vtt,
}

impl TranscriptFormat {
    const ALL: [(&'static str, Self); 5] = [
        ("json", Self::Json),
        ("text", Self::Text),
        ("srt", Self::Srt),
        ("verbose_json", Self::VerboseJson(Timed::Segments)),
        ("vtt", Self::Vtt),
    ];

    /// Whether segments have times in it.
    pub fn has_times(self) -> bool {
        matches!(self, Self::Srt | Self::VerboseJson(_) | Self::Vtt)
    }
}

/// What `verbose_json` lists with times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Timed {
    Segments,
    Words,
    Both,
}

impl Timed {
    /// The field that lists them, and its other spelling.
    pub const FIELDS: [&str; 2] = ["timestamp_granularities[]", "timestamp_granularities"];

    /// `None` if the form does not say.
    fn read(form: &mut FormFields) -> Result<Option<Self>, ApiError> {
        let (mut segments, mut words) = (false, false);
        for field in Self::FIELDS {
            for granularity in form.texts(field)? {
                match granularity.as_str() {
                    "segment" => segments = true,
                    "word" => words = true,
                    _ => {
                        let message = format!("`{field}` must be `segment` or `word`");
                        return Err(ApiError::invalid(field, message));
                    }
                }
            }
        }
        Ok(match (segments, words) {
            (false, false) => None,
            (true, false) => Some(Self::Segments),
            (false, true) => Some(Self::Words),
            (true, true) => Some(Self::Both),
        })
    }

    /// Whether segments are listed.
    pub fn lists_segments(self) -> bool {
        matches!(self, Self::Segments | Self::Both)
    }

    /// Whether words are listed.
    pub fn lists_words(self) -> bool {
        matches!(self, Self::Words | Self::Both)
    }
}

impl TranscriptionRequest {
    /// Reads a form.
    pub fn read(mut form: FormFields) -> Result<Self, ApiError> {
        let format = form.text("response_format")?;
        let format = match format.as_deref() {
            None => TranscriptFormat::Json,
            Some(name) => {
                let found = TranscriptFormat::ALL.iter().find(|(known, _)| *known == name);
                found.map(|(_, format)| *format).ok_or_else(|| {
                    let message = "`response_format` must be json, text, srt, verbose_json or vtt";
                    ApiError::invalid("response_format", message)
                })?
            }
        };
        let format = match (format, Timed::read(&mut form)?) {
            (TranscriptFormat::VerboseJson(_), Some(timed)) => TranscriptFormat::VerboseJson(timed),
            (format, None) => format,
            (_, Some(_)) => {
                let [field, _] = Timed::FIELDS;
                let message = format!("`{field}` needs `response_format` to be `verbose_json`");
                return Err(ApiError::invalid(field, message));
            }
        };
        let stream = form.flag("stream")?.unwrap_or(false);
        if stream && format.has_times() {
            return Err(ApiError::unsupported(
                "stream",
                "`stream` needs `response_format` to be `json` or `text`",
            ));
        }
        let temperature = form.number("temperature")?.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&temperature) {
            return Err(ApiError::invalid("temperature", "`temperature` must be between 0 and 1"));
        }
        let language = form.text("language")?.filter(|code| !code.is_empty());
        if language.as_ref().is_some_and(|code| code.len() > LANGUAGE_BYTES_MAX) {
            return Err(ApiError::invalid("language", "`language` must be a code such as `en`"));
        }
        let file =
            form.file("file")?.ok_or_else(|| ApiError::invalid("file", "`file` is required: a recording"))?;
        Ok(Self {
            file,
            model: form.text("model")?.filter(|name| !name.is_empty()),
            language,
            prompt: form.text("prompt")?.filter(|prompt| !prompt.trim().is_empty()),
            format,
            temperature: temperature as f32,
            seed: form.whole("seed")?,
            priority: form.whole("priority")?.unwrap_or(0),
            stream,
        })
    }
}

/// The body of `json`.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Transcript<'a> {
    pub text: &'a str,
    pub usage: SpeechUsage,
}

/// How long the recording is.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs)]
pub struct SpeechUsage {
    pub r#type: &'static str,
    pub seconds: u64,
}

/// The body of `verbose_json`.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct VerboseTranscript<'a> {
    pub task: &'static str,
    pub language: Option<&'a str>,
    pub duration: f64,
    pub text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<Word<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<Segment<'a>>>,
    pub usage: SpeechUsage,
}

/// A segment of `verbose_json`.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Segment<'a> {
    pub id: usize,
    /// Where its window begins, in hundredths of a second.
    pub seek: u64,
    pub start: f64,
    pub end: f64,
    pub text: &'a str,
    pub tokens: &'a [u32],
    pub temperature: f32,
    pub avg_logprob: f32,
    pub compression_ratio: f32,
    pub no_speech_prob: f32,
}

/// A word of `verbose_json`, without the marks around it.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Word<'a> {
    pub word: &'a str,
    pub start: f64,
    pub end: f64,
}

/// A frame of a stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
#[allow(missing_docs)]
pub enum TranscriptFrame<'a> {
    #[serde(rename = "transcript.text.delta")]
    Delta { delta: &'a str },
    #[serde(rename = "transcript.text.done")]
    Done { text: &'a str, usage: SpeechUsage },
}
