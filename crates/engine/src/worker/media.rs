//! A device's media: the encoders of images and of audio, and the features they made.
//!
//! Invariant: one medium is encoded at a time, in parts, so that steps go on between.

mod encoders;
mod feature_cache;
mod feature_files;
mod rows;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use mlx::Array;
use omnibus_model::encoders::Features;
use omnibus_model::{KernelChoice, Kernels, Source};

use super::capacity::MediaMemory;
use super::device_call::{EncodingParts, MediaHit};
use crate::error::StartError;
use crate::front::LargestMedia;
use crate::media::{JobMedia, MediaKey};
use crate::settings::Settings;
use crate::stats::MediaStats;
use encoders::Encoders;
use feature_cache::FeatureCache;
use feature_files::{FeatureFiles, FeatureRead};

/// Most media that are remembered as encoded.
const ENCODED_MAX: usize = 1 << 16;

/// Encoders, and the features they made.
pub(super) struct MediaEncoding {
    encoders: Encoders,
    files: Option<FeatureFiles>,
    features: FeatureCache,
    begun: Option<PartialEncoding>,
    /// Of media that were encoded, to know why features are missing. Cleared when it is full.
    encoded: BTreeSet<u128>,
    /// What is counted here; the rest is the cache's.
    stats: MediaStats,
}

/// A medium that is being encoded.
struct PartialEncoding {
    key: MediaKey,
    /// Not evaluated yet.
    features: Features,
    /// What the layers make that were not evaluated yet.
    stages: VecDeque<Array>,
    /// What a layer costs.
    units: u64,
}

impl MediaEncoding {
    /// Uses the GPU kernels that were chosen for the model.
    pub(super) fn use_kernels(&self, choice: &KernelChoice) {
        self.encoders.use_kernels(choice);
    }

    /// The encoders of a model, if it has any whose features its text side takes. A checkpoint without an encoder's weights
    /// is served without it.
    pub(super) fn load(
        source: &Source,
        kernels: Kernels,
        settings: &Settings,
    ) -> Result<Option<Self>, StartError> {
        let encoders = Encoders::load(source, kernels);
        if !encoders.reads_images() && !encoders.reads_audio() {
            return Ok(None);
        }
        Ok(Some(Self {
            encoders,
            files: FeatureFiles::open(settings, source)?,
            features: FeatureCache::new(settings.media_cache_memory),
            begun: None,
            encoded: BTreeSet::new(),
            stats: MediaStats::default(),
        }))
    }

    /// What it takes besides its weights.
    pub(super) fn memory(&self, source: &Source) -> MediaMemory {
        let encoder_bytes = self.encoders.scratch_bytes(LargestMedia::of(source));
        MediaMemory { media_bytes: self.features.limit_bytes(), encoder_bytes }
    }

    /// Whether there is an encoder of images.
    pub(super) fn reads_images(&self) -> bool {
        self.encoders.reads_images()
    }

    /// Whether there is an encoder of audio.
    pub(super) fn reads_audio(&self) -> bool {
        self.encoders.reads_audio()
    }

    /// Whether features are in memory. Counts as a use.
    pub(super) fn has(&mut self, key: MediaKey) -> bool {
        self.features.has(key)
    }

    /// Counts a medium that was not encoded.
    pub(super) fn count_hit(&mut self, hit: MediaHit) {
        match hit {
            MediaHit::Prefix => self.stats.prefix_hits_total += 1,
            MediaHit::Features => self.stats.feature_hits_total += 1,
        }
    }

    /// Reads the features of a medium from disk, if they are there and it was not begun. False once there is nothing to wait
    /// for.
    pub(super) fn is_reading(&mut self, media: &JobMedia) -> bool {
        let is_begun = self.begun.as_ref().is_some_and(|begun| begun.key == media.key);
        let Some(files) = self.files.as_mut().filter(|_| !is_begun) else { return false };
        match files.read(media.key) {
            FeatureRead::Pending => true,
            FeatureRead::Absent => false,
            FeatureRead::Done(features) => {
                let has_all = |rows: i32| media.is_crossed() || rows as usize == media.features();
                let fits = features.rows.dim(0).is_ok_and(has_all);
                if fits {
                    self.stats.disk_hits_total += 1;
                    self.features.insert(media.key, features);
                }
                false
            }
        }
    }

    /// Whether the features of a medium are on disk.
    pub(super) fn is_stored(&self, key: MediaKey) -> bool {
        self.files.as_ref().is_some_and(|files| files.has(key))
    }

    /// Whether any features are being read.
    pub(super) fn awaits_disk(&self) -> bool {
        self.files.as_ref().is_some_and(FeatureFiles::is_reading)
    }

    /// The parts that a medium has left. Another medium that was begun is begun anew later.
    pub(super) fn parts_left(&mut self, media: &JobMedia) -> mlx::Result<EncodingParts> {
        let begun = self.begun(media)?;
        let units = begun.units;
        Ok(EncodingParts { count: begun.stages.len() + 1, units })
    }

    /// Computes the next parts of a medium. The last one makes its features.
    pub(super) fn encode_parts(&mut self, media: &JobMedia, parts: usize) -> mlx::Result<()> {
        let started = Instant::now();
        let begun = self.begun(media)?;
        let stages = begun.stages.len();
        let last = begun.stages.drain(..parts.min(stages)).next_back();
        mlx::eval(&last)?;
        if parts > stages {
            let Features { rows, deepstack } = &begun.features;
            mlx::eval(std::iter::once(rows).chain(deepstack))?;
            if let Some(begun) = self.begun.take() {
                self.stats.encoder_runs_total += 1;
                self.count_miss(media.key);
                if let Some(files) = &self.files
                    && let Err(error) = files.write(media.key, &begun.features)
                {
                    tracing::warn!(%error, "features of a medium are not written to disk");
                }
                self.features.insert(media.key, begun.features);
            }
        }
        self.stats.encode_seconds_total += started.elapsed().as_secs_f64();
        Ok(())
    }

    /// The medium that is being encoded: this one.
    fn begun(&mut self, media: &JobMedia) -> mlx::Result<&mut PartialEncoding> {
        let is_this = self.begun.as_ref().is_some_and(|begun| begun.key == media.key);
        let begun = match self.begun.take().filter(|_| is_this) {
            Some(begun) => begun,
            None => {
                let pixels =
                    media.pixels.as_ref().ok_or_else(|| mlx::Error::new("the pixels are missing"))?;
                let (features, stages) = self.encoders.encode_in_stages(pixels)?;
                let (found, wanted) = (features.rows.dim(0)? as usize, media.features());
                if found != wanted && !media.is_crossed() {
                    let message = format!("a medium has {found} features; its prompt has {wanted}");
                    return Err(mlx::Error::new(message));
                }
                PartialEncoding {
                    key: media.key,
                    features,
                    stages: stages.into(),
                    units: media.summary.units,
                }
            }
        };
        Ok(self.begun.insert(begun))
    }

    fn count_miss(&mut self, key: MediaKey) {
        if self.encoded.len() >= ENCODED_MAX {
            self.encoded.clear();
        }
        match self.encoded.insert(key.mark()) {
            true => self.stats.cold_misses_total += 1,
            false => self.stats.evicted_misses_total += 1,
        }
    }

    /// Evicts features until the limit is kept, but none of `needed`.
    pub(super) fn evict(&mut self, needed: &[MediaKey]) {
        self.features.evict(needed);
    }

    /// Drops all features, after a failure.
    pub(super) fn clear(&mut self) {
        self.features.clear();
        self.begun = None;
    }

    /// Counts and sizes so far.
    pub(super) fn stats(&self) -> MediaStats {
        MediaStats {
            entries: self.features.entries(),
            bytes: self.features.bytes(),
            limit_bytes: self.features.limit_bytes(),
            evicted_total: self.features.evicted_total(),
            ..self.stats
        }
    }
}
