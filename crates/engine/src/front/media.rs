//! From the files of a request to what an encoder takes, and to the tokens that stand for them in its prompt.
//!
//! Invariant: it runs on the threads that submit requests, a few at a time, and what it costs is limited before memory is
//! allocated. An error is the request's, and names its part.

mod file_budget;
mod frame_groups;
mod largest;
mod placeholders;
mod prepared;
mod sounds;
mod views;

use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use omnibus_media::{
    Alpha, Audio, AudioProcessor, ConfigFiles, ContentKey, Error, Features, Ffmpeg, Format, Limits,
    Processor, decode_audio, decode_frames, decode_image, decode_video,
};
use omnibus_model::{Source, encoders};
use omnibus_text::{ContentPart, Message};
use serde_json::{Map, Value};

use file_budget::FileBudget;
pub(crate) use largest::LargestMedia;
pub(super) use placeholders::{PromptMedia, written};
use prepared::PreparedCache;
pub(super) use prepared::{Prepared, PreparedContent};
pub(crate) use sounds::SpeechWindow;

use crate::error::Failure;
use crate::media::{ByteBudget, EncoderPixels, MediaFiles, MediaItem};
use crate::message::Ready;
use crate::request::Chat;

/// Most parts of one request.
const PARTS_MAX: usize = 128;
/// Most bytes of what the encoder takes of one request: less than a message between the processes may have.
const REQUEST_BYTES_MAX: u64 = 192 << 20;
/// Most bytes of what the encoder takes of all open requests together.
const OPEN_BYTES_MAX: u64 = 1 << 30;
/// Most files that are decoded at once: one may take a gigabyte.
const DECODERS_MAX: usize = 4;

/// How a model's media are read and prepared.
pub(crate) struct MediaReader {
    pictures: Option<Pictures>,
    audio: Option<AudioProcessor>,
    limits: Limits,
    budget: ByteBudget,
    files: FileBudget,
    cache: PreparedCache,
    decoders: Slots,
    /// Of recordings to write down, which are longer.
    recordings: Slots,
}

/// How pictures and videos are prepared.
struct Pictures {
    processor: Processor,
    /// Side of the encoder's patches, in pixels.
    patch: usize,
    /// For videos that no library decodes.
    ffmpeg: Option<Ffmpeg>,
}

/// What a file may cost here: several are decoded at once, for clients that need not be trusted.
fn limits() -> Limits {
    Limits {
        file_bytes: 64 << 20,
        clip_pixels: 128 << 20,
        decoded_pixels: 8 << 30,
        seconds: 600.0,
        ..Limits::default()
    }
}

/// What a part of a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MediaKind {
    Image,
    Audio,
    Video,
}

impl MediaKind {
    fn with_article(self) -> &'static str {
        match self {
            Self::Image => "an image",
            Self::Audio => "audio",
            Self::Video => "a video",
        }
    }
}

impl MediaReader {
    /// How the media of a model are prepared, with this many bytes of files at once. `None`, with a warning if its files are
    /// wrong, for a model without encoders: it is served for text.
    pub(crate) fn read(source: &Source, ffmpeg: Option<&Path>, file_bytes: u64) -> Option<Self> {
        let config = source.config().ok()?;
        let (patch, hears) = (patch_of(&config), hears(&config));
        if patch.is_none() && !hears {
            return None;
        }
        let file = |name: &str| source.json(name).ok().map(Value::Object);
        let config = Value::Object(config);
        let (preprocessor, processor) = (file("preprocessor_config.json"), file("processor_config.json"));
        let video = file("video_preprocessor_config.json");
        let files = ConfigFiles {
            config: Some(&config),
            preprocessor: preprocessor.as_ref(),
            processor: processor.as_ref(),
            video_preprocessor: video.as_ref(),
        };
        let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let of_pictures = |patch| {
            let processor = without("pictures", Processor::read(model_type, &files))?;
            Some(Pictures { processor, patch, ffmpeg: ffmpeg.map(Ffmpeg::new) })
        };
        let pictures = patch.and_then(of_pictures);
        let audio = hears.then(|| without("audio", AudioProcessor::read(model_type, &files))).flatten();
        Self {
            pictures,
            audio,
            limits: limits(),
            budget: ByteBudget::new(OPEN_BYTES_MAX),
            files: FileBudget::new(file_bytes),
            cache: PreparedCache::default(),
            decoders: Slots::new(DECODERS_MAX),
            recordings: Slots::new(sounds::RECORDINGS_MAX),
        }
        .unless_empty()
    }

    /// Whether the model hears.
    pub(super) fn hears(&self) -> bool {
        self.audio.is_some()
    }

    /// Whether the model sees.
    pub(super) fn sees(&self) -> bool {
        self.pictures.is_some()
    }

    /// Without what the loaded model has no encoder of.
    pub(super) fn for_loaded(self, ready: &Ready) -> Option<Self> {
        let (pictures, audio) =
            (self.pictures.filter(|_| ready.reads_images), self.audio.filter(|_| ready.reads_audio));
        Self { pictures, audio, ..self }.unless_empty()
    }

    fn unless_empty(self) -> Option<Self> {
        let has_any = self.pictures.is_some() || self.audio.is_some();
        has_any.then_some(self)
    }

    /// The parts of a conversation in the order of its messages, prepared. `salt`: only requests of equal salt share them.
    pub(super) fn prepare(&self, chat: &Chat, salt: u128) -> Result<Vec<Prepared>, Failure> {
        let parts = parts(chat)?;
        if let Some((_, item)) = parts.get(PARTS_MAX) {
            let message = format!("`{}`: a request has at most {PARTS_MAX} media parts", item.field);
            return Err(Failure::bad_request(&item.field, message));
        }
        let _files = self.files.reserve(parts.iter().map(|(_, item)| *item))?;
        let (mut prepared, mut bytes) = (Vec::with_capacity(parts.len()), 0u64);
        for (kind, item) in parts {
            let one = self.part(kind, item, salt)?;
            bytes = bytes.saturating_add(one.bytes());
            if bytes > REQUEST_BYTES_MAX {
                let message = format!(
                    "`{}`: the request's media take {bytes} bytes as the model sees them, over the limit of \
                     {REQUEST_BYTES_MAX}; send fewer or smaller ones",
                    item.field
                );
                return Err(Failure::bad_request(&item.field, message));
            }
            prepared.push(one);
        }
        Ok(prepared)
    }

    fn part(&self, kind: MediaKind, item: &MediaItem, salt: u128) -> Result<Prepared, Failure> {
        let fail =
            |message: String| Failure::bad_request(&item.field, format!("`{}`: {message}", item.field));
        let at_url = || {
            let message = "this server fetches no URLs from there; send the bytes as a `data:` URL, or start it \
                           with --allow-media-domain or --allow-media-dir";
            fail(message.to_owned())
        };
        let sent = item.source.key().ok_or_else(at_url)?;
        let alias = (sent, kind, salt);
        if let Some(found) = self.cache.find(&alias) {
            return Ok(found);
        }
        let decoder = self.decoders.acquire();
        let files = item.source.files().map_err(|error| fail(error.to_string()))?.ok_or_else(at_url)?;
        let prepared = self.prepared(kind, &files).map_err(|error| match error {
            PartError::Unusable(message) => fail(message),
            PartError::Busy => Failure::Busy { retry_after_s: 1 },
        });
        drop(decoder);
        let prepared = prepared?;
        self.cache.insert(alias, prepared.clone());
        Ok(prepared)
    }

    fn prepared(&self, kind: MediaKind, files: &MediaFiles) -> Result<Prepared, PartError> {
        match (kind, &self.pictures, &self.audio) {
            (MediaKind::Image | MediaKind::Video, Some(pictures), _) => {
                let (key, features) = pictures.decode(kind, files, &self.limits)?;
                let (expansion, grid) = (features.expansion.clone(), features.grid);
                let pixels = views::pixels(features, pictures.patch)?;
                let contents = match kind {
                    MediaKind::Video => {
                        let processor = pictures.processor.key();
                        frame_groups::contents(key, processor, expansion.features(), pixels)
                    }
                    MediaKind::Image | MediaKind::Audio => {
                        vec![PreparedContent { key, features: expansion.features(), pixels }]
                    }
                };
                let reserved = |content: PreparedContent| {
                    Ok(PreparedContent { pixels: self.within_budget(content.pixels)?, ..content })
                };
                let contents = contents.into_iter().map(reserved).collect::<Result<_, PartError>>()?;
                Ok(Prepared { contents, expansion, grid })
            }
            (MediaKind::Audio, _, Some(processor)) => {
                let audio = decode_audio(files.first(), &self.limits, processor.rate())?;
                self.window_of(processor, &audio)
            }
            (_, None, _) | (MediaKind::Audio, _, None) => {
                let reads = if self.pictures.is_some() { "text and images" } else { "text and audio" };
                Err(PartError::Unusable(refused(kind, reads)))
            }
        }
    }

    /// What the audio encoder takes of one window of sound.
    fn window_of(&self, processor: &AudioProcessor, audio: &Audio) -> Result<Prepared, PartError> {
        let features = processor.audio(audio)?;
        let expansion = features.expansion.clone();
        let pixels = self.within_budget(views::spectrum(features)?)?;
        let key = ContentKey::of_audio(audio).with(processor.key());
        let content = PreparedContent { key, features: expansion.features(), pixels };
        Ok(Prepared { contents: vec![content], expansion, grid: None })
    }

    /// Fails while too many open requests have pixels.
    fn within_budget(&self, pixels: EncoderPixels) -> Result<EncoderPixels, PartError> {
        if let Some(within) = pixels.clone().within(&self.budget) {
            return Ok(within);
        }
        self.cache.clear();
        pixels.within(&self.budget).ok_or(PartError::Busy)
    }
}

impl Pictures {
    /// The content's key, and what the processor makes of it.
    fn decode(
        &self,
        kind: MediaKind,
        files: &MediaFiles,
        limits: &Limits,
    ) -> Result<(ContentKey, Features), Error> {
        let (key, features) = match (kind, self.processor.sampling()) {
            (MediaKind::Video, Some(sampling)) => {
                let clip = match files {
                    MediaFiles::One(file) => decode_video(file, limits, &sampling, self.ffmpeg.as_ref())?,
                    MediaFiles::Frames(images, rate) => decode_frames(images, *rate, limits, &sampling)?,
                };
                (ContentKey::of_clip(&clip), self.processor.video(&clip)?)
            }
            (MediaKind::Video, None) => {
                let detail = "this model sees images only".to_owned();
                return Err(Error::Unsuitable { what: "video", detail });
            }
            (MediaKind::Image | MediaKind::Audio, _) => {
                let bytes = files.first();
                let image = match (decode_image(bytes, limits, Alpha::default()), &self.ffmpeg) {
                    (Err(Error::Unsupported { .. }), Some(ffmpeg)) if is_for_ffmpeg(bytes) => {
                        ffmpeg.decode_image(bytes, limits)?
                    }
                    (decoded, _) => decoded?,
                };
                (ContentKey::of_image(&image), self.processor.image(&image)?)
            }
        };
        Ok((key.with(self.processor.key()), features))
    }
}

/// Whether a picture is in a format that ffmpeg may decode and no library here does.
fn is_for_ffmpeg(bytes: &[u8]) -> bool {
    matches!(Format::of(bytes), Some(Format::Avif | Format::Heic))
}

/// Why a part is not prepared.
enum PartError {
    /// It is of no use to this model, or to any.
    Unusable(String),
    /// There is no memory left for it now.
    Busy,
}

impl From<Error> for PartError {
    fn from(error: Error) -> Self {
        Self::Unusable(error.to_string())
    }
}

impl From<String> for PartError {
    fn from(message: String) -> Self {
        Self::Unusable(message)
    }
}

/// Side of the patches of a model's picture encoder, in pixels, if it has one that is served.
fn patch_of(config: &Map<String, Value>) -> Option<usize> {
    let encoder = without("pictures", encoders::read(config)).flatten()?;
    Some(encoder.patches.size)
}

/// Whether a model has an audio encoder.
fn hears(config: &Map<String, Value>) -> bool {
    without("audio", encoders::audio::read(config)).flatten().is_some()
}

/// What was read, or a warning that the model is served without it.
fn without<T, E: std::fmt::Display>(what: &str, read: Result<T, E>) -> Option<T> {
    read.map_err(|error| tracing::warn!(%error, "the model is served without {what}")).ok()
}

/// The media parts of a conversation in their order.
fn parts(chat: &Chat) -> Result<Vec<(MediaKind, &MediaItem)>, Failure> {
    let refs = chat.messages.iter().flat_map(|message| &message.content).filter_map(media_of);
    let item = |(kind, index)| {
        let item = chat.media.get(index);
        let item = item.ok_or_else(|| Failure::bad_request("messages", "a media part has no content"));
        item.map(|item| (kind, item))
    };
    refs.map(item).collect()
}

fn media_of(part: &ContentPart) -> Option<(MediaKind, usize)> {
    match part {
        ContentPart::Image(index) => Some((MediaKind::Image, index.0)),
        ContentPart::Audio(index) => Some((MediaKind::Audio, index.0)),
        ContentPart::Video(index) => Some((MediaKind::Video, index.0)),
        ContentPart::Text(_)
        | ContentPart::Reasoning(_)
        | ContentPart::ToolCall(_)
        | ContentPart::ToolResult(_) => None,
    }
}

/// A conversation for a model without an encoder: a note stands for each part of a tool's result, so that an agent's
/// session goes on. Fails if a client sends a part itself.
pub(super) fn without_media(mut chat: Chat) -> Result<Chat, Failure> {
    for message in &mut chat.messages {
        note_tool_media(message);
    }
    match parts(&chat)?.first() {
        None => Ok(chat),
        Some((kind, item)) => {
            let message = format!("`{}` is {}", item.field, refused(*kind, "text"));
            Err(Failure::bad_request(&item.field, message))
        }
    }
}

/// The failure of a sound for a model that does not hear. `sees`: whether it sees.
pub(super) fn deaf(field: &str, sees: bool) -> Failure {
    let reads = if sees { "text and images" } else { "text" };
    Failure::bad_request(field, format!("`{field}` is {}", refused(MediaKind::Audio, reads)))
}

/// Why a model that reads something else refuses a part.
fn refused(kind: MediaKind, reads: &str) -> String {
    let (does, known): (&str, Vec<&str>) = match kind {
        MediaKind::Image | MediaKind::Video => {
            ("sees images", encoders::ENCODERS.iter().map(|family| family.model_type).collect())
        }
        MediaKind::Audio => {
            ("hears", encoders::AUDIO_ENCODERS.iter().map(|family| family.model_type).collect())
        }
    };
    let what = kind.with_article();
    format!(
        "{what}, and this model reads {reads} only; serve a model that {does}: one of type {}",
        known.join(", ")
    )
}

fn note_tool_media(message: &mut Message) {
    let of_tool = message.content.iter().any(|part| matches!(part, ContentPart::ToolResult(_)));
    if !of_tool {
        return;
    }
    let mut notes = Vec::new();
    message.content.retain(|part| match media_of(part) {
        Some((kind, _)) => {
            let name = kind.with_article().trim_start_matches("an ").trim_start_matches("a ");
            notes.push(format!("[{name}: this model reads text only]"));
            false
        }
        None => true,
    });
    for part in &mut message.content {
        if let ContentPart::ToolResult(result) = part {
            for note in notes.drain(..) {
                result.text.push_str(if result.text.is_empty() { "" } else { "\n\n" });
                result.text.push_str(&note);
            }
        }
    }
}

/// A number of places, each held by one thread.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place, freed when dropped.
struct Slot<'a>(&'a Slots);

impl Slots {
    fn new(places: usize) -> Self {
        Self { free: Mutex::new(places), freed: Condvar::new() }
    }

    /// Waits for a place.
    fn acquire(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
