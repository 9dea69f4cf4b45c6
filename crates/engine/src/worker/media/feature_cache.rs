//! Features in memory, by key.
//!
//! Invariant: features are bounded in bytes, the least recently used go first; those that the next step needs stay, even if
//! they are more than that.

use std::collections::BTreeMap;

use omnibus_model::encoders::Features;
use omnibus_model::{CrossStates, Model};

use crate::media::MediaKey;

/// Features of media.
pub(super) struct FeatureCache {
    features: BTreeMap<MediaKey, CachedFeatures>,
    limit_bytes: u64,
    /// Of all features.
    bytes: u64,
    evicted_total: u64,
    /// Uses so far.
    clock: u64,
}

/// Features of a medium.
pub(super) struct CachedFeatures {
    pub(super) features: Features,
    /// Keys and values in layers of cross attention, made when a step first needs them.
    pub(super) cross: Option<CrossStates>,
    bytes: u64,
    used: u64,
}

impl FeatureCache {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { features: BTreeMap::new(), limit_bytes, bytes: 0, evicted_total: 0, clock: 0 }
    }

    /// Whether features are there. Counts as a use.
    pub(super) fn has(&mut self, key: MediaKey) -> bool {
        self.clock += 1;
        let clock = self.clock;
        self.features.get_mut(&key).map(|cached| cached.used = clock).is_some()
    }

    /// Features by key. Fails if they are missing.
    pub(super) fn get(&self, key: MediaKey) -> mlx::Result<&CachedFeatures> {
        self.features.get(&key).ok_or_else(missing)
    }

    /// Adds the features of a medium.
    pub(super) fn insert(&mut self, key: MediaKey, features: Features) {
        let arrays = std::iter::once(&features.rows).chain(&features.deepstack);
        let bytes = arrays.map(|array| array.nbytes() as u64).sum();
        self.clock += 1;
        self.features.insert(key, CachedFeatures { features, cross: None, bytes, used: self.clock });
        self.count();
    }

    /// Makes a medium's keys and values in the model's layers of cross attention, unless they are there or its features are
    /// missing.
    pub(super) fn make_cross_states(&mut self, key: MediaKey, model: &Model) -> mlx::Result<()> {
        let cached = self.features.get_mut(&key).filter(|cached| cached.cross.is_none());
        let Some(cached) = cached else { return Ok(()) };
        let states = model.cross_states(&cached.features.rows)?;
        let states = states.ok_or_else(|| mlx::Error::new("the model has no cross attention"))?;
        mlx::eval(states.arrays())?;
        cached.bytes += states.arrays().map(|array| array.nbytes() as u64).sum::<u64>();
        cached.cross = Some(states);
        self.count();
        Ok(())
    }

    /// Evicts features until the limit is kept, but none of `needed`.
    pub(super) fn evict(&mut self, needed: &[MediaKey]) {
        while self.bytes > self.limit_bytes {
            let others = self.features.iter().filter(|(key, _)| !needed.contains(key));
            let Some(oldest) = others.min_by_key(|(_, cached)| cached.used).map(|(key, _)| *key) else {
                return;
            };
            self.features.remove(&oldest);
            self.evicted_total += 1;
            self.count();
        }
    }

    /// Drops all features.
    pub(super) fn clear(&mut self) {
        self.features.clear();
        self.count();
    }

    /// How many media have features.
    pub(super) fn entries(&self) -> u64 {
        self.features.len() as u64
    }

    /// Bytes of all features.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limit of [`Self::bytes`].
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Media whose features were evicted so far.
    pub(super) fn evicted_total(&self) -> u64 {
        self.evicted_total
    }

    fn count(&mut self) {
        self.bytes = self.features.values().map(|cached| cached.bytes).sum();
    }
}

/// The failure of a step whose features are missing.
pub(super) fn missing() -> mlx::Error {
    mlx::Error::new("features of a medium are missing")
}
