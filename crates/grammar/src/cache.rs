//! The most recently used values, up to a number.

use std::collections::BTreeMap;

/// The most recently used values by key.
pub(crate) struct Cache<T> {
    entries: BTreeMap<u128, (u64, T)>,
    most: usize,
    uses: u64,
}

impl<T: Clone> Cache<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: BTreeMap::new(), most, uses: 0 }
    }

    pub(crate) fn get(&mut self, key: u128) -> Option<T> {
        self.uses += 1;
        let (used, value) = self.entries.get_mut(&key)?;
        *used = self.uses;
        Some(value.clone())
    }

    /// Adds a value; the least recently used one makes room.
    pub(crate) fn insert(&mut self, key: u128, value: T) {
        self.uses += 1;
        self.entries.insert(key, (self.uses, value));
        while self.entries.len() > self.most {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn remove(&mut self, key: u128) {
        self.entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_evicted() {
        let mut cache = Cache::new(2);
        cache.insert(1, "a");
        cache.insert(2, "b");
        assert_eq!(cache.get(1), Some("a"));
        cache.insert(3, "c");
        assert_eq!((cache.get(1), cache.get(2), cache.get(3)), (Some("a"), None, Some("c")));
    }
}
