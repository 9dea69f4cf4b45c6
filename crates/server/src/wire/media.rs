//! Images, videos and sound in content parts, in the shapes of every API.
//!
//! Invariant: bytes come from the body itself; a URL is only passed on. What the bytes are is for the engine to say.

use bytes::Bytes;
use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured, type_error};
use crate::error::ApiError;

/// Fields of `image_url` and `video_url`.
pub const URL: &[Field] = &[
    honoured("url", "a `data:` URL, or an `https:` or `file:` URL that the server allows"),
    harmless("detail", "the model's processor chooses the size"),
];

/// Fields of `input_audio`.
pub const AUDIO: &[Field] =
    &[honoured("data", "base64"), harmless("format", "the first bytes say what it is")];

/// Fields of the `source` of Anthropic's images.
pub const SOURCE: &[Field] = &[
    honoured("type", "`base64` or `url`"),
    honoured("data", "base64"),
    honoured("url", "an `https:` or `file:` URL that the server allows"),
    harmless("media_type", "the first bytes say what it is"),
];

/// A part that is no text.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaPart {
    /// What it is.
    pub kind: MediaKind,
    /// Its field, for errors.
    pub field: String,
    /// Where its bytes are.
    pub source: MediaSource,
}

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MediaKind {
    Image,
    Audio,
    Video,
}

/// Where the bytes of a part are.
#[derive(Debug, Clone, PartialEq)]
pub enum MediaSource {
    /// Here, in base64, which the engine decodes when it needs them.
    Base64(Bytes),
    /// At a URL.
    Url(String),
    /// Images that are the frames of a video, so many in 1,000 seconds.
    Frames {
        #[allow(missing_docs)]
        files: Vec<MediaSource>,
        #[allow(missing_docs)]
        per_1000_s: u32,
    },
}

/// Frames a second of a list of images, if the client does not say: Qwen's processors take as many of a video.
const FRAMES_A_SECOND: f64 = 2.0;
/// Most frames of a list.
const FRAMES_MAX: usize = 4096;

/// A part of the message's content.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// Anything else.
    Media(MediaPart),
}

/// The type of a part with the frames of a video, and the field of their list.
const FRAMES: &str = "video";

/// The kind of a part of this type, if it is media.
pub fn kind_of(part_type: &str) -> Option<MediaKind> {
    match part_type {
        "image_url" => Some(MediaKind::Image),
        "video_url" | FRAMES => Some(MediaKind::Video),
        "input_audio" => Some(MediaKind::Audio),
        _ => None,
    }
}

/// The media of a part of OpenAI's chat, whose `name` field holds it: a URL, or an object with one.
pub fn of_chat(kind: MediaKind, name: &str, fields: &mut Fields) -> Result<MediaPart, ApiError> {
    let at = fields.at(name);
    if kind == MediaKind::Audio {
        let audio = fields.nested(name, AUDIO)?;
        let mut audio = fields.required(name, audio)?;
        let data = audio.text("data")?;
        let (data, field) = (audio.required("data", data)?, audio.at("data"));
        return Ok(MediaPart { kind, source: MediaSource::Base64(data.into()), field });
    }
    match fields.value(name) {
        Some(Value::Array(frames)) if name == FRAMES => {
            let fps = fields.number("fps")?;
            of_frames(frames, fps, &fields.at("fps"), at)
        }
        Some(Value::String(url)) => of_url(kind, url, at),
        Some(object @ Value::Object(_)) => {
            let mut inner = Fields::open(object, &at, &[URL])?;
            let url = inner.text("url")?;
            of_url(kind, inner.required("url", url)?, inner.at("url"))
        }
        Some(other) => Err(type_error(&at, "an object with a `url`", &other)),
        None => Err(ApiError::invalid(&at, format!("`{at}` is missing"))),
    }
}

/// The image of one of Anthropic's blocks, whose `source` field says where it is.
pub fn of_anthropic(fields: &mut Fields) -> Result<MediaPart, ApiError> {
    let source = fields.value("source");
    let at = fields.at("source");
    let mut source = Fields::tolerant(fields.required("source", source)?, &at, &[SOURCE])?;
    let kind = source.text("type")?;
    match source.required("type", kind)?.as_str() {
        "base64" => {
            let data = source.text("data")?;
            let (data, field) = (source.required("data", data)?, source.at("data"));
            Ok(MediaPart { kind: MediaKind::Image, field, source: MediaSource::Base64(data.into()) })
        }
        "url" => {
            let url = source.text("url")?;
            of_url(MediaKind::Image, source.required("url", url)?, source.at("url"))
        }
        other => {
            let at = source.at("type");
            let message = format!("`{at}` must be `base64` or `url`, not `{other}`");
            Err(ApiError::unsupported(&at, message))
        }
    }
}

/// The image of a part of the Responses API.
pub fn of_responses(fields: &mut Fields) -> Result<MediaPart, ApiError> {
    let (url, at) = (fields.text("image_url")?, fields.at("image_url"));
    match url {
        Some(url) => of_url(MediaKind::Image, url, at),
        None => {
            let message = format!("`{at}` is missing: this server keeps no files, so `file_id` names none");
            Err(ApiError::invalid(&at, message))
        }
    }
}

/// The media that a file's data are, if it is an image, a video or a sound, by its type or the ending of its name.
pub fn of_file_data(data: &str, name: Option<&str>, at: &str) -> Result<Option<MediaPart>, ApiError> {
    let Some(kind) = kind_of_data(data).or(name.and_then(kind_of_name)) else { return Ok(None) };
    if data.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:")) {
        return of_url(kind, data.to_owned(), at.to_owned()).map(Some);
    }
    let source = MediaSource::Base64(data.to_owned().into());
    Ok(Some(MediaPart { kind, field: at.to_owned(), source }))
}

/// The media at a file's URL, if it is an image, a video or a sound, by the ending of its name.
pub fn of_file_url(url: &str, name: Option<&str>, at: &str) -> Result<Option<MediaPart>, ApiError> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let Some(kind) = name.and_then(kind_of_name).or(kind_of_name(path)) else { return Ok(None) };
    of_url(kind, url.to_owned(), at.to_owned()).map(Some)
}

/// By the type of a `data:` URL.
fn kind_of_data(url: &str) -> Option<MediaKind> {
    let kind = url.split_once(':')?.1.split_once('/')?.0;
    let kinds = [("image", MediaKind::Image), ("video", MediaKind::Video), ("audio", MediaKind::Audio)];
    kinds.into_iter().find(|(name, _)| kind.eq_ignore_ascii_case(name)).map(|(_, kind)| kind)
}

/// By the ending of a file's name.
fn kind_of_name(name: &str) -> Option<MediaKind> {
    const ENDINGS: &[(MediaKind, &[&str])] = &[
        (MediaKind::Image, &["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic"]),
        (MediaKind::Video, &["mp4", "mkv", "webm", "mov", "avi"]),
        (MediaKind::Audio, &["wav", "mp3", "flac", "ogg", "m4a", "aac", "aiff"]),
    ];
    let (_, ending) = name.rsplit_once('.')?;
    let is_of = |endings: &&[&str]| endings.iter().any(|known| ending.eq_ignore_ascii_case(known));
    ENDINGS.iter().find(|(_, endings)| is_of(endings)).map(|(kind, _)| *kind)
}

/// Adds a part to a message's content. Adjacent texts are joined by `gap`.
pub fn push(parts: &mut Vec<Part>, part: Part, gap: &str) {
    match (part, parts.last_mut()) {
        (Part::Text(text), Some(Part::Text(before))) => {
            before.push_str(gap);
            before.push_str(&text);
        }
        (part, _) => parts.push(part),
    }
}

/// The media at a URL; a `data:` URL holds them itself.
pub fn of_url(kind: MediaKind, url: String, field: String) -> Result<MediaPart, ApiError> {
    let has_scheme =
        |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if has_scheme("data:") {
        // The type that the sender gives is used for nothing but frames: the first bytes say what it is.
        let Some((head, data)) = url.split_once(',').filter(|(head, _)| is_base64(head)) else {
            let message = format!("`{field}` must be a data URL in base64: `data:image/png;base64,…`");
            return Err(ApiError::invalid(&field, message));
        };
        let mut start = head.len() + 1;
        // As vLLM's clients send frames: each in base64, with commas between them.
        let is_list =
            data.contains(',') || head.get(5..15).is_some_and(|kind| kind.eq_ignore_ascii_case("video/jpeg"));
        let lengths: Vec<usize> = match kind == MediaKind::Video && is_list {
            true => data.split(',').map(str::len).collect(),
            false => Vec::new(),
        };
        let all = Bytes::from(url);
        if lengths.is_empty() {
            return Ok(MediaPart { kind, source: MediaSource::Base64(all.slice(start..)), field });
        }
        let frame = |length: usize| {
            let frame = all.slice(start..start + length);
            start += length + 1;
            MediaSource::Base64(frame)
        };
        let files = lengths.into_iter().map(frame).collect();
        return frames(files, FRAMES_A_SECOND, field);
    }
    if ["https:", "http:", "file:"].into_iter().any(has_scheme) {
        return Ok(MediaPart { kind, source: MediaSource::Url(url), field });
    }
    let message = format!("`{field}` must be a URL that begins with `data:`, `https:`, `http:` or `file:`");
    Err(ApiError::invalid(&field, message))
}

/// A video of images, each a URL or an object with one.
fn of_frames(list: Vec<Value>, fps: Option<f64>, fps_at: &str, at: String) -> Result<MediaPart, ApiError> {
    let fps = fps.unwrap_or(FRAMES_A_SECOND);
    if !(0.001..=1000.0).contains(&fps) {
        return Err(ApiError::invalid(fps_at, format!("`{fps_at}` must be between 0.001 and 1000")));
    }
    let frame = |(index, value): (usize, Value)| {
        let at = format!("{at}[{index}]");
        let part = match value {
            Value::String(url) => of_url(MediaKind::Image, url, at),
            object @ Value::Object(_) => {
                let mut fields = Fields::open(object, &at, &[URL])?;
                let url = fields.text("url")?;
                of_url(MediaKind::Image, fields.required("url", url)?, fields.at("url"))
            }
            other => Err(type_error(&at, "a URL", &other)),
        };
        part.map(|part| part.source)
    };
    let files = list.into_iter().enumerate().map(frame).collect::<Result<_, _>>()?;
    frames(files, fps, at)
}

fn frames(files: Vec<MediaSource>, fps: f64, field: String) -> Result<MediaPart, ApiError> {
    if files.is_empty() || files.len() > FRAMES_MAX {
        let message = format!("`{field}` must have 1 to {FRAMES_MAX} frames, not {}", files.len());
        return Err(ApiError::invalid(&field, message));
    }
    let per_1000_s = (fps * 1000.0).round() as u32;
    Ok(MediaPart { kind: MediaKind::Video, source: MediaSource::Frames { files, per_1000_s }, field })
}

fn is_base64(head: &str) -> bool {
    head.rsplit_once(';').is_some_and(|(_, coding)| coding.trim().eq_ignore_ascii_case("base64"))
}
