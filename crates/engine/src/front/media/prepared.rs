//! Prepared media, kept for a while by the bytes that clients sent.
//!
//! Invariant: bounded bytes; the least recently used goes first.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use omnibus_media::{ContentKey, Expansion, Grid};

use super::MediaKind;
use crate::media::EncoderPixels;

/// Most bytes of what is kept.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// A part of a request, as the model's processor sees it. Clones share what encoders take.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// What is encoded on its own, in order: one picture, or the windows of a sound.
    pub(crate) contents: Vec<PreparedContent>,
    /// The tokens that stand for it.
    pub(crate) expansion: Expansion,
    /// Where all its features are one grid.
    pub(crate) grid: Option<Grid>,
}

/// A picture, or a window of sound.
#[derive(Debug, Clone)]
pub(crate) struct PreparedContent {
    /// Key of its content and of the processor's settings.
    pub(crate) key: ContentKey,
    /// How many features it has in the prompt.
    pub(crate) features: usize,
    /// What the encoder takes.
    pub(crate) pixels: EncoderPixels,
}

impl Prepared {
    /// Bytes of what encoders take.
    pub(crate) fn bytes(&self) -> u64 {
        self.contents.iter().map(|content| content.pixels.bytes()).sum()
    }
}

/// Key of a file's bytes, what they are read as, and the salt of the request that sent them.
pub(super) type Alias = (ContentKey, MediaKind, u128);

/// What was prepared lately.
#[derive(Default)]
pub(super) struct PreparedCache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_alias: BTreeMap<Alias, (u64, Prepared)>,
    bytes: u64,
    /// Uses so far.
    clock: u64,
}

impl PreparedCache {
    pub(super) fn find(&self, alias: &Alias) -> Option<Prepared> {
        let mut entries = self.lock();
        entries.clock += 1;
        let clock = entries.clock;
        let (used, prepared) = entries.by_alias.get_mut(alias)?;
        *used = clock;
        Some(prepared.clone())
    }

    pub(super) fn insert(&self, alias: Alias, prepared: Prepared) {
        let bytes = prepared.bytes();
        if bytes > CACHE_BYTES_MAX {
            return;
        }
        let mut entries = self.lock();
        entries.clock += 1;
        let clock = entries.clock;
        if let Some((_, before)) = entries.by_alias.insert(alias, (clock, prepared)) {
            entries.bytes -= before.bytes();
        }
        entries.bytes += bytes;
        while entries.bytes > CACHE_BYTES_MAX {
            let Some(oldest) =
                entries.by_alias.iter().min_by_key(|(_, (used, _))| *used).map(|(alias, _)| *alias)
            else {
                break;
            };
            if let Some((_, evicted)) = entries.by_alias.remove(&oldest) {
                entries.bytes -= evicted.bytes();
            }
        }
    }

    pub(super) fn clear(&self) {
        *self.lock() = Entries::default();
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
