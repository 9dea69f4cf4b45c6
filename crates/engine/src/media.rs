//! Media of requests and jobs: what clients send ([`source`]), what an encoder takes of it, and where in a prompt it stands.
//!
//! Invariant: plain serializable values that are cheap to clone, because jobs are kept for the next engine process and
//! requests are copied for each of their answers.

mod byte_budget;
mod sound;
mod source;

use std::ops::Range;
use std::sync::Arc;

use omnibus_media::Layout;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use byte_budget::{ByteBudget, Reserved};
pub(crate) use sound::Sound;
pub(crate) use source::MediaFiles;
pub use source::{MediaBytes, MediaItem, MediaSource};

use crate::digest::digest;

/// Identifies features: all 256 bits of a hash of the content, the processor's settings, the tenant and the salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct MediaKey(u128, u128);

impl MediaKey {
    /// `content`: as the processor sees it. `salt`: only requests of equal salt share features.
    pub(crate) fn new(content: &[u8; 32], salt: u128) -> Self {
        let half = |which: &[u8]| digest(&[b"media", which, content, &salt.to_le_bytes()]);
        Self(half(b"0"), half(b"1"))
    }

    /// All its bits.
    pub(crate) fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let (first, second) = bytes.split_at_mut(16);
        first.copy_from_slice(&self.0.to_le_bytes());
        second.copy_from_slice(&self.1.to_le_bytes());
        bytes
    }

    /// Its mark in the chain of block hashes.
    pub(crate) fn mark(&self) -> u128 {
        self.0
    }
}

/// A picture, video or sound of a job's prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobMedia {
    /// Identifies its features.
    pub(crate) key: MediaKey,
    /// Positions of the prompt whose tokens its features replace, in their order: runs of adjacent ones.
    pub(crate) runs: Vec<Range<usize>>,
    /// Grids, where they are: what multimodal rotary positions count. The first of a part's contents has those of all.
    pub(crate) grids: Vec<GridSpan>,
    /// Which encoder it is for, and how.
    pub(crate) summary: ContentSummary,
    /// What the encoder takes. It crosses no socket with the job: an engine process has `None` until it needs them and
    /// [requests](crate::message::Report::requested_pixels) them.
    #[serde(skip)]
    pub(crate) pixels: Option<EncoderPixels>,
}

/// What is known of a content without its pixels or samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContentSummary {
    #[allow(missing_docs)]
    pub(crate) kind: ContentKind,
    /// Where its features go.
    pub(crate) placement: Placement,
    /// Patches or frames that pass through a layer at once, by which encoding costs.
    pub(crate) units: u64,
}

/// What an encoder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ContentKind {
    /// A picture, or frames of a video.
    Picture,
    /// A window of sound.
    Sound,
}

/// Where features go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Placement {
    /// In the place of tokens of the prompt.
    Prompt,
    /// To layers of cross attention.
    CrossAttention,
}

impl JobMedia {
    /// A content at some runs of positions, which are no grids.
    pub(crate) fn of(key: MediaKey, runs: Vec<Range<usize>>, pixels: EncoderPixels) -> Self {
        Self { key, runs, grids: Vec::new(), summary: pixels.summary(), pixels: Some(pixels) }
    }

    /// The first of its positions.
    pub(crate) fn first(&self) -> usize {
        self.runs.first().map_or(0, |run| run.start)
    }

    /// The position after its last one.
    pub(crate) fn end(&self) -> usize {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Whether rows attend to it in layers of cross attention: its one position keeps its token.
    pub(crate) fn is_crossed(&self) -> bool {
        self.summary.placement == Placement::CrossAttention
    }

    /// Whether rows after so many cached tokens read its features.
    pub(crate) fn is_read(&self, cached: usize) -> bool {
        // They attend to a picture in the cached prefix in layers of cross attention.
        self.end() > cached || self.is_crossed()
    }

    /// How many features it has in the prompt.
    pub(crate) fn features(&self) -> usize {
        self.runs.iter().map(Range::len).sum()
    }

    /// The rows of its features that stand at some of these positions: positions, and the first row.
    pub(crate) fn rows_in(&self, positions: &Range<usize>) -> Vec<(Range<usize>, usize)> {
        let mut before = 0;
        let mut found = Vec::new();
        for run in &self.runs {
            let (start, end) = (run.start.max(positions.start), run.end.min(positions.end));
            if start < end {
                found.push((start..end, before + start - run.start));
            }
            before += run.len();
        }
        found
    }
}

/// Runs of adjacent positions of a prompt that have features of pictures. `media`: those of the prompt, in order.
pub(crate) fn picture_runs(media: &[JobMedia]) -> Vec<Range<usize>> {
    let is_picture = |media: &&JobMedia| media.summary.kind == ContentKind::Picture;
    let pictures = media.iter().filter(is_picture).filter(|media| !media.is_crossed());
    let mut runs: Vec<Range<usize>> = Vec::new();
    for run in pictures.flat_map(|picture| &picture.runs) {
        match runs.last_mut().filter(|last| last.end == run.start) {
            Some(last) => last.end = run.end,
            None => runs.push(run.clone()),
        }
    }
    runs
}

/// Positions among these that attend to pictures in layers of cross attention, and to which: from a picture's token on, up to
/// the next one's, to this picture and to those adjacent before it.
pub(crate) fn crossed_in(media: &[JobMedia], positions: &Range<usize>) -> Vec<(Range<usize>, Vec<MediaKey>)> {
    let crossed: Vec<&JobMedia> = media.iter().filter(|media| media.is_crossed()).collect();
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for (index, media) in crossed.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| crossed.get(before));
        if before.is_none_or(|before| before.end() != media.first()) {
            seen.clear();
        }
        seen.push(media.key);
        let next = crossed.get(index + 1).map_or(usize::MAX, |next| next.first());
        let (start, end) = (media.first().max(positions.start), next.min(positions.end));
        if start < end {
            found.push((start..end, seen.clone()));
        }
    }
    found
}

/// Adjacent positions that are a grid of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GridSpan {
    /// The first position.
    pub(crate) first: usize,
    /// Steps in time.
    pub(crate) frames: usize,
    /// Rows of a frame.
    pub(crate) rows: usize,
    /// Features of a row.
    pub(crate) columns: usize,
}

/// What an encoder takes of one picture or of one window of sound. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct EncoderPixels(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    content: EncoderContent,
    /// Given back with the last clone.
    _reserved: Option<Reserved>,
}

/// What an encoder takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum EncoderContent {
    /// The picture encoder.
    Picture(PicturePixels),
    /// The audio encoder.
    Spectrum(Spectrum),
}

/// A log-mel spectrum of one window of sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spectrum {
    /// Of all frames, one after the other, as many numbers of each as there are bands.
    #[serde(with = "crate::floats")]
    pub(crate) values: Vec<f32>,
    #[allow(missing_docs)]
    pub(crate) bands: usize,
    /// Leading frames that are sound; others fill the window up.
    pub(crate) sound: usize,
    /// Its features are no rows of the prompt: layers of cross attention read them.
    pub(crate) is_crossed: bool,
}

impl Spectrum {
    /// Frames of the window.
    pub(crate) fn frames(&self) -> usize {
        self.values.len() / self.bands.max(1)
    }
}

/// The views of a picture or of a video.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PicturePixels {
    #[allow(missing_docs)]
    pub(crate) views: Vec<ViewPixels>,
    /// How their features become the picture's.
    pub(crate) layout: Layout,
}

impl From<PicturePixels> for EncoderContent {
    fn from(pixels: PicturePixels) -> Self {
        Self::Picture(pixels)
    }
}

impl From<Vec<ViewPixels>> for EncoderContent {
    fn from(views: Vec<ViewPixels>) -> Self {
        Self::Picture(PicturePixels { views, layout: Layout::Views })
    }
}

impl From<Spectrum> for EncoderContent {
    fn from(spectrum: Spectrum) -> Self {
        Self::Spectrum(spectrum)
    }
}

/// Views of equal size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ViewPixels {
    /// Patches `[count · rows · columns, elements]`, or pixels `[count, channels, height, width]`.
    pub(crate) shape: Vec<i32>,
    /// As many as the shape says.
    #[serde(with = "crate::floats")]
    pub(crate) values: Vec<f32>,
    /// How many views; rows and columns of patches of one.
    pub(crate) grid: [usize; 3],
}

impl EncoderPixels {
    /// Of this content, without a budget.
    pub(crate) fn new(content: impl Into<EncoderContent>) -> Self {
        Self(Arc::new(Shared { content: content.into(), _reserved: None }))
    }

    /// Encoder input of this content within a budget; `None` if it is spent.
    pub(crate) fn within(self, budget: &ByteBudget) -> Option<Self> {
        let reserved = budget.reserve(self.bytes())?;
        let content = match Arc::try_unwrap(self.0) {
            Ok(shared) => shared.content,
            Err(shared) => shared.content.clone(),
        };
        Some(Self(Arc::new(Shared { content, _reserved: Some(reserved) })))
    }

    /// What it holds.
    pub(crate) fn content(&self) -> &EncoderContent {
        &self.0.content
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        match self.content() {
            EncoderContent::Picture(PicturePixels { views, .. }) => {
                views.iter().map(|view| size_of_val(view.values.as_slice()) as u64).sum()
            }
            EncoderContent::Spectrum(spectrum) => size_of_val(spectrum.values.as_slice()) as u64,
        }
    }

    /// Patches of all views. Zero for a sound.
    pub(crate) fn patches(&self) -> usize {
        match self.content() {
            EncoderContent::Picture(PicturePixels { views, .. }) => {
                views.iter().map(|view| view.grid.iter().product::<usize>()).sum()
            }
            EncoderContent::Spectrum(_) => 0,
        }
    }

    /// What a job says of it.
    pub(crate) fn summary(&self) -> ContentSummary {
        match self.content() {
            EncoderContent::Picture(PicturePixels { views, layout }) => ContentSummary {
                kind: ContentKind::Picture,
                placement: match layout {
                    Layout::Tiles { .. } => Placement::CrossAttention,
                    _ => Placement::Prompt,
                },
                units: (self.patches() / views.len().max(1)) as u64,
            },
            EncoderContent::Spectrum(spectrum) => ContentSummary {
                kind: ContentKind::Sound,
                placement: if spectrum.is_crossed { Placement::CrossAttention } else { Placement::Prompt },
                units: spectrum.frames() as u64,
            },
        }
    }
}

impl PartialEq for EncoderPixels {
    fn eq(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

impl Serialize for EncoderPixels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.content().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EncoderPixels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        EncoderContent::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_attend_to_the_last_pictures_before_them() {
        let tiles = || PicturePixels { views: Vec::new(), layout: Layout::Tiles { shape: 1, count: 1 } };
        let at = |position: usize, key: u8| {
            let runs = std::iter::once(position..position + 1).collect();
            JobMedia::of(MediaKey::new(&[key; 32], 0), runs, EncoderPixels::new(tiles()))
        };
        let media = [at(2, 0), at(6, 1), at(7, 2)];
        let keys = |which: &[usize]| which.iter().map(|which| media[*which].key).collect::<Vec<_>>();
        assert_eq!(crossed_in(&media, &(0..2)), []);
        assert_eq!(crossed_in(&media, &(0..4)), [(2..4, keys(&[0]))]);
        let [one, two] = [(6..7, keys(&[1])), (7..9, keys(&[1, 2]))];
        assert_eq!(crossed_in(&media, &(4..9)), [(4..6, keys(&[0])), one, two]);
        assert_eq!(crossed_in(&media, &(9..10)), [(9..10, keys(&[1, 2]))]);
    }

    #[test]
    fn rows_follow_one_another_over_all_runs() {
        let pixels = EncoderPixels::new(Vec::<ViewPixels>::new());
        let media = JobMedia::of(MediaKey::new(&[7; 32], 0), vec![2..4, 5..8], pixels);
        assert_eq!(media.rows_in(&(0..9)), [(2..4, 0), (5..8, 2)]);
        assert_eq!(media.rows_in(&(3..6)), [(3..4, 1), (5..6, 2)]);
        assert_eq!(media.rows_in(&(4..5)), []);
    }

    #[test]
    fn adjacent_pictures_are_one_run() {
        let media = |runs: Vec<Range<usize>>, content: EncoderContent| {
            JobMedia::of(MediaKey::new(&[7; 32], 0), runs, EncoderPixels::new(content))
        };
        let picture = |runs| media(runs, EncoderContent::from(Vec::<ViewPixels>::new()));
        let one = |run: Range<usize>| Vec::from_iter([run]);
        let sound = Spectrum { values: Vec::new(), bands: 1, sound: 0, is_crossed: false };
        let all = [
            picture(vec![1..3, 4..6]),
            picture(one(6..9)),
            media(one(9..11), EncoderContent::Spectrum(sound)),
        ];
        assert_eq!(picture_runs(&all), [1..3, 4..9]);
    }

    #[test]
    fn pixels_return_to_their_budget_with_the_last_clone() {
        let pixels = || {
            let view = ViewPixels { shape: vec![1, 2], values: vec![0.0; 2], grid: [1, 1, 1] };
            EncoderPixels::new(vec![view])
        };
        let budget = ByteBudget::new(12);
        let first = pixels().within(&budget).unwrap();
        let clone = first.clone();
        assert!(pixels().within(&budget).is_none(), "8 of 12 bytes are taken");
        drop(first);
        assert!(pixels().within(&budget).is_none());
        drop(clone);
        assert!(pixels().within(&budget).is_some());
    }

    #[test]
    fn keys_depend_on_content_and_salt() {
        let key = MediaKey::new(&[7; 32], 1);
        assert_eq!(key, MediaKey::new(&[7; 32], 1));
        assert_ne!(key, MediaKey::new(&[7; 32], 2));
        assert_ne!(key, MediaKey::new(&[8; 32], 1));
        assert_ne!(key.0, key.1);
    }
}
