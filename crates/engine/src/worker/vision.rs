//! The encoders of pictures and of audio, and the features they made, by key.
//!
//! Invariant: features are bounded in bytes, the least recently used go first; those that the next step needs stay, even if
//! they are more than that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use mlx::Array;
use omnibus_model::encoders::Features;
use omnibus_model::{CrossRows, CrossStates, FeatureRows, KernelChoice, Kernels, Model, Source};

use super::alignment;
use super::capacity::MediaMemory;
use super::device_call::{EncodingParts, MediaHit};
use super::encoders::Encoders;
use super::feature_files::{FeatureFiles, FeatureRead};
use super::step_input::{CrossedRows, MediaRows};
use crate::error::StartError;
use crate::front::LargestMedia;
use crate::media::{JobMedia, MediaKey};
use crate::settings::Settings;
use crate::stats::MediaStats;

/// Most pictures that are remembered as encoded.
const ENCODED_MAX: usize = 1 << 16;

/// Encoders, and the features they made.
pub(super) struct Vision {
    encoders: Encoders,
    files: Option<FeatureFiles>,
    features: BTreeMap<MediaKey, CachedFeatures>,
    begun: Option<PartialEncoding>,
    limit_bytes: u64,
    /// Of pictures that were encoded, to tell why features are missing. Cleared when it is full.
    encoded: BTreeSet<u128>,
    /// Uses so far.
    clock: u64,
    stats: MediaStats,
}

/// A picture that is being encoded.
struct PartialEncoding {
    key: MediaKey,
    /// Not evaluated yet.
    features: Features,
    /// What the layers make that were not evaluated yet.
    stages: VecDeque<Array>,
    /// What a layer costs.
    units: u64,
}

struct CachedFeatures {
    features: Features,
    /// Keys and values in layers of cross attention, made when a step first needs them.
    cross: Option<CrossStates>,
    bytes: u64,
    used: u64,
}

impl Vision {
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
        if !encoders.sees() && !encoders.hears() {
            return Ok(None);
        }
        let limit_bytes = settings.media_cache_memory;
        Ok(Some(Self {
            encoders,
            files: FeatureFiles::open(settings, source)?,
            features: BTreeMap::new(),
            begun: None,
            limit_bytes,
            encoded: BTreeSet::new(),
            clock: 0,
            stats: MediaStats { limit_bytes, ..MediaStats::default() },
        }))
    }

    /// What it takes besides its weights.
    pub(super) fn memory(&self, source: &Source) -> MediaMemory {
        let encoder_bytes = self.encoders.scratch_bytes(LargestMedia::of(source));
        MediaMemory { media_bytes: self.limit_bytes, encoder_bytes }
    }

    /// Its encoders.
    pub(super) fn encoders(&self) -> &Encoders {
        &self.encoders
    }

    /// Whether features are there. Counts as a use.
    pub(super) fn has(&mut self, key: MediaKey) -> bool {
        self.clock += 1;
        let clock = self.clock;
        self.features.get_mut(&key).map(|cached| cached.used = clock).is_some()
    }

    /// Counts a picture that was not encoded.
    pub(super) fn count_hit(&mut self, hit: MediaHit) {
        match hit {
            MediaHit::Prefix => self.stats.prefix_hits_total += 1,
            MediaHit::Features => self.stats.feature_hits_total += 1,
        }
    }

    /// Reads the features of a picture from disk, if they are there and it was not begun. False once there is nothing to wait
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
                    self.keep(media.key, features);
                }
                false
            }
        }
    }

    /// Whether the features of a picture are on disk.
    pub(super) fn is_stored(&self, key: MediaKey) -> bool {
        self.files.as_ref().is_some_and(|files| files.has(key))
    }

    /// Whether any features are being read.
    pub(super) fn awaits_disk(&self) -> bool {
        self.files.as_ref().is_some_and(FeatureFiles::is_reading)
    }

    /// The parts that a picture has left. Another picture that was begun is begun anew later.
    pub(super) fn parts_left(&mut self, media: &JobMedia) -> mlx::Result<EncodingParts> {
        let begun = self.begun(media)?;
        let units = begun.units;
        Ok(EncodingParts { count: begun.stages.len() + 1, units })
    }

    /// Computes the next parts of a picture. The last one makes its features.
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
                    tracing::warn!(%error, "features of a picture are not written to disk");
                }
                self.keep(media.key, begun.features);
            }
        }
        self.stats.encode_seconds_total += started.elapsed().as_secs_f64();
        Ok(())
    }

    /// The picture that is being encoded: this one.
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
                    let message = format!("a picture has {found} features; its prompt has {wanted}");
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

    fn keep(&mut self, key: MediaKey, features: Features) {
        let arrays = std::iter::once(&features.rows).chain(&features.deepstack);
        let bytes = arrays.map(|array| array.nbytes() as u64).sum();
        self.clock += 1;
        self.features.insert(key, CachedFeatures { features, cross: None, bytes, used: self.clock });
        self.count();
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
        while self.stats.bytes > self.limit_bytes {
            let others = self.features.iter().filter(|(key, _)| !needed.contains(key));
            let Some(oldest) = others.min_by_key(|(_, cached)| cached.used).map(|(key, _)| *key) else {
                return;
            };
            self.features.remove(&oldest);
            self.stats.evicted_total += 1;
            self.count();
        }
    }

    /// Drops all features, after a failure.
    pub(super) fn clear(&mut self) {
        self.features.clear();
        self.begun = None;
        self.count();
    }

    fn count(&mut self) {
        self.stats.entries = self.features.len() as u64;
        self.stats.bytes = self.features.values().map(|cached| cached.bytes).sum();
    }

    pub(super) fn stats(&self) -> MediaStats {
        self.stats
    }

    /// Rows of a pass that attend to pictures, with keys and values of these. Fails if features are missing.
    pub(super) fn crossed(&mut self, crossed: &[CrossedRows], model: &Model) -> mlx::Result<Vec<CrossRows>> {
        for key in crossed.iter().flat_map(|of| &of.keys) {
            let Some(cached) = self.features.get_mut(key).filter(|cached| cached.cross.is_none()) else {
                continue;
            };
            let states = model.cross_states(&cached.features.rows)?;
            let states = states.ok_or_else(|| mlx::Error::new("the model has no cross attention"))?;
            mlx::eval(states.arrays())?;
            cached.bytes += states.arrays().map(|array| array.nbytes() as u64).sum::<u64>();
            cached.cross = Some(states);
        }
        if !crossed.is_empty() {
            self.count();
        }
        let of_rows = |of: &CrossedRows| {
            let states = of.keys.iter().map(|key| self.features.get(key)?.cross.as_ref());
            let states = states.collect::<Option<Vec<_>>>();
            let states = states.ok_or_else(|| mlx::Error::new("features of a picture are missing"))?;
            let weights = of.aligned.as_ref().map(|aligned| Rc::new(alignment::collector(aligned)));
            let states = CrossStates::joined(&states)?;
            Ok(CrossRows { rows: of.first..of.first + of.len, states, weights })
        };
        crossed.iter().map(of_rows).collect()
    }

    /// The rows of a pass that have features, with them. Fails if features are missing.
    pub(super) fn rows(&self, media: &[MediaRows]) -> mlx::Result<Option<FeatureRows>> {
        let (mut rows, mut of_layers) = (Vec::new(), Vec::<Vec<Array>>::new());
        for of in media {
            let cached = self.features.get(&of.key);
            let cached = cached.ok_or_else(|| mlx::Error::new("features of a picture are missing"))?;
            let layers = std::iter::once(&cached.features.rows).chain(&cached.features.deepstack);
            let parts = layers.map(|layer| slice(layer, of)).collect::<mlx::Result<Vec<_>>>()?;
            of_layers.resize(of_layers.len().max(parts.len()), Vec::new());
            for (layer, part) in of_layers.iter_mut().zip(parts) {
                layer.push(part);
            }
            rows.extend(of.first..of.first + of.len);
        }
        let joined = |parts: Vec<Array>| match parts.as_slice() {
            [one] => Ok(one.clone()),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0),
        };
        let mut layers = of_layers.into_iter().map(joined).collect::<mlx::Result<Vec<_>>>()?.into_iter();
        Ok(layers.next().map(|features| FeatureRows { rows, features, deepstack: layers.collect() }))
    }
}

fn slice(features: &Array, rows: &MediaRows) -> mlx::Result<Array> {
    let [count, width] = features.dims()?;
    let (from, to) = (rows.from as i32, (rows.from + rows.len) as i32);
    if to > count {
        return Err(mlx::Error::new(format!("a picture has {count} features; its prompt has room for {to}")));
    }
    features.slice(&[from, 0], &[to, width])
}
