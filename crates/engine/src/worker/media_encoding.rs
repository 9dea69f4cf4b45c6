//! What the loop needs of encoders: features of media, made in parts between steps and kept by key.

use crate::MediaStats;
use crate::media::{JobMedia, MediaKey};

/// Parts of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EncodingParts {
    /// How many.
    pub(super) count: usize,
    /// What one costs: patches that pass through a layer.
    pub(super) units: u64,
}

/// Why a medium was not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaHit {
    /// It is inside the cached prefix, which needs no features.
    Prefix,
    /// Its features were in memory.
    Features,
}

/// Encodes media and keeps their features.
pub(super) trait MediaEncoding {
    /// Whether the features of a medium are there. Counts as a use.
    fn has_features(&mut self, media: &JobMedia) -> bool;

    /// Whether the features of a medium are being read from disk. The first call starts that.
    fn is_reading_features(&mut self, media: &JobMedia) -> bool;

    /// Whether the features of a medium are on disk, as far as is known.
    fn has_stored_features(&self, media: &JobMedia) -> bool;

    /// Whether any features are being read.
    fn awaits_features(&self) -> bool;

    /// Encodes a medium, between steps.
    fn encode(&mut self, media: &JobMedia) -> mlx::Result<()>;

    /// The parts that encoding a medium has left, if it is not the one that is being encoded, all.
    fn parts_left(&mut self, media: &JobMedia) -> mlx::Result<EncodingParts>;

    /// Computes the next parts of a medium. Its features are there after the last one.
    fn encode_parts(&mut self, media: &JobMedia, parts: usize) -> mlx::Result<()>;

    /// Counts a medium of an admitted prompt that was not encoded for it.
    fn count_media_hit(&mut self, hit: MediaHit);

    /// Evicts the features that were not used for longest, until the limit of memory is kept, but none of `needed`.
    fn evict_features(&mut self, needed: &[MediaKey]);

    /// Statistics of encoding and of features.
    fn media_stats(&self) -> MediaStats;
}
