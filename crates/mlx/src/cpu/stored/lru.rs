//! Which values stay within a budget of bytes: those that were used last.
//!
//! Invariant: pure; the bytes of all values together never exceed the budget.

use std::collections::BTreeMap;

/// An expert of a stack: the number of the stack, then that of the expert.
pub(super) type Key = (u32, u32);

/// Values by expert, in the order in which they were used.
pub(super) struct Lru<T> {
    budget_bytes: u64,
    used_bytes: u64,
    uses: u64,
    entries: BTreeMap<Key, Entry<T>>,
    /// By the number of their last use.
    order: BTreeMap<u64, Key>,
}

struct Entry<T> {
    last_use: u64,
    bytes: u64,
    value: T,
}

impl<T> Lru<T> {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, used_bytes: 0, uses: 0, entries: BTreeMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// The value, which becomes the last one to be evicted.
    pub(super) fn touch(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(&key)?;
        self.order.remove(&entry.last_use);
        self.uses += 1;
        entry.last_use = self.uses;
        self.order.insert(self.uses, key);
        Some(&mut entry.value)
    }

    /// The value, without a use.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(&key).map(|entry| &mut entry.value)
    }

    /// Evicts the values that were used least recently and may go, until there is room for `bytes` more. `None`, and
    /// nothing is evicted, if there cannot be.
    pub(super) fn evict_for(&mut self, bytes: u64, may_go: impl Fn(&T) -> bool) -> Option<Vec<T>> {
        let mut missing = self.used_bytes.saturating_add(bytes).saturating_sub(self.budget_bytes);
        let mut victims = Vec::new();
        for key in self.order.values() {
            if missing == 0 {
                break;
            }
            if let Some(entry) = self.entries.get(key).filter(|entry| may_go(&entry.value)) {
                missing = missing.saturating_sub(entry.bytes);
                victims.push(*key);
            }
        }
        (missing == 0).then(|| victims.into_iter().filter_map(|key| self.remove(key)).collect())
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.remove(&key)?;
        self.order.remove(&entry.last_use);
        self.used_bytes -= entry.bytes;
        Some(entry.value)
    }

    /// Adds a value that is not there, as the last used. False, and not added, where it exceeds the budget: room is made
    /// with [`Self::evict_for`].
    pub(super) fn insert(&mut self, key: Key, bytes: u64, value: T) -> bool {
        if self.contains(key) || self.used_bytes.saturating_add(bytes) > self.budget_bytes {
            return false;
        }
        self.uses += 1;
        self.used_bytes += bytes;
        self.entries.insert(key, Entry { last_use: self.uses, bytes, value });
        self.order.insert(self.uses, key);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list in the order of uses. Experts with the number `kept` are never evicted.
        #[test]
        fn the_values_used_last_stay_within_the_budget(
            budget in 1u64..40,
            kept in 0u32..16,
            uses in proptest::collection::vec((0u32..3, 0u32..8), 1..200),
        ) {
            let bytes = |key: Key| 1 + u64::from(key.0);
            let sum = |keys: &[Key]| keys.iter().copied().map(bytes).sum::<u64>();
            let mut lru = Lru::new(budget);
            let mut expected: Vec<Key> = Vec::new();
            for key in uses {
                let was_there = expected.contains(&key);
                prop_assert_eq!(lru.touch(key).copied(), was_there.then_some(key));
                expected.retain(|other| *other != key);
                if !was_there {
                    let mut rest = expected.clone();
                    let mut victims = Vec::new();
                    while sum(&rest) + bytes(key) > budget {
                        let Some(at) = rest.iter().position(|other| other.1 != kept) else { break };
                        victims.push(rest.remove(at));
                    }
                    let fits = sum(&rest) + bytes(key) <= budget;
                    prop_assert_eq!(lru.evict_for(bytes(key), |other| other.1 != kept), fits.then_some(victims));
                    prop_assert_eq!(lru.insert(key, bytes(key), key), fits);
                    if !fits {
                        continue;
                    }
                    expected = rest;
                }
                expected.push(key);
                prop_assert_eq!(lru.used_bytes(), sum(&expected));
                prop_assert!(lru.used_bytes() <= budget);
            }
        }
    }
}
