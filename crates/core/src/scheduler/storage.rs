//! The scheduler's side of an offload tier: which blocks to store, which to load, and where to put them.
//!
//! The engine stores the blocks of [`Scheduler::take_newly_cached`] in the tier. For a waiting sequence,
//! [`Scheduler::missing_blocks`] names the blocks that would extend its cache hit; while they are read,
//! [`Scheduler::hold`] keeps the sequence in the queue, and [`Scheduler::restore`] then says where the content goes.
//!
//! Invariant: never returns a block that a step in flight uses, nor one of the sequence's cache hit.

use omnibus_kv::BlockId;

use super::Scheduler;
use crate::prefix::BlockHash;
use crate::sequence::{Hold, Phase};
use crate::{CachedBlock, SequenceId};

impl Scheduler {
    /// At most `most` newly cached blocks that are still cached and were not returned before, each group's oldest first.
    /// Their content is final and stays until the next [`Self::apply`] or [`Self::restore`]. Restored blocks are not
    /// among them.
    pub fn take_newly_cached(&mut self, most: usize) -> Vec<CachedBlock> {
        self.kv_cache.take_newly_cached(most)
    }

    /// For a waiting sequence: the blocks, by group and hash and in order, that are missing for its longest cache hit if
    /// all blocks in `stored` were cached. Empty if the tier does not extend the hit.
    pub fn missing_blocks(&self, id: SequenceId, stored: impl Fn(usize, u128) -> bool) -> Vec<(usize, u128)> {
        let Some(keys) = self.lookup_hashes(id) else { return Vec::new() };
        let here = self.kv_cache.longest_cache_hit(keys, keys.len());
        let there =
            self.kv_cache.cache_hit_lengths(keys, keys.len(), |group, key| stored(group, key.0), |_| {});
        let Some(blocks) = there.filter(|there| *there > here) else { return Vec::new() };
        self.kv_cache.missing(&keys[..blocks]).into_iter().map(|(group, at)| (group, keys[at].0)).collect()
    }

    /// Keeps a waiting sequence from being planned, until [`Self::release_hold`]. It can still expire, be cancelled and
    /// be overtaken. No effect on other sequences.
    pub fn hold(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).filter(|sequence| sequence.phase == Phase::Waiting);
        if let Some(sequence) = sequence {
            sequence.offload.hold = Hold::Now;
            self.waiting.hold(sequence);
            self.version.0 += 1;
        }
    }

    /// Lets a held sequence be planned again. No effect on others.
    pub fn release_hold(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(&id).filter(|sequence| sequence.is_held()) {
            sequence.offload.hold = Hold::Released;
            self.waiting.release(sequence);
            self.version.0 += 1;
        }
    }

    /// The hashes of a sequence's full blocks, in order. Empty for an unknown sequence, or without prefix caching.
    pub fn block_hashes(&self, id: SequenceId) -> Vec<u128> {
        let sequence = self.sequences.get(&id);
        sequence
            .map_or_else(Vec::new, |sequence| sequence.cache.hashes.all().iter().map(|key| key.0).collect())
    }

    /// The block of a hash in a group. Its content stays until the next [`Self::apply`] or [`Self::restore`].
    pub fn find_cached_block(&self, group: usize, key: u128) -> Option<BlockId> {
        self.kv_cache.groups().nth(group).and_then(|(_, pool)| pool.find(&BlockHash(key)))
    }

    /// True while a sequence is held.
    pub fn is_held(&self, id: SequenceId) -> bool {
        self.sequences.get(&id).is_some_and(|sequence| sequence.is_held())
    }

    /// Allocates cached blocks for what `loaded` has, as many as extend a waiting sequence's cache hit and fit. The
    /// engine writes their content before the next [`Self::apply`], after all launched steps. They have no references,
    /// so they may be evicted before the sequence is admitted.
    pub fn restore(&mut self, id: SequenceId, loaded: impl Fn(usize, u128) -> bool) -> Vec<CachedBlock> {
        let Some(keys) = self.lookup_hashes(id) else { return Vec::new() };
        let here = self.kv_cache.longest_cache_hit(keys, keys.len());
        let mut cache_hit_lengths = Vec::new();
        let visit = |blocks| cache_hit_lengths.extend((blocks > here).then_some(blocks));
        self.kv_cache.cache_hit_lengths(keys, keys.len(), |group, key| loaded(group, key.0), visit);
        let fitting =
            cache_hit_lengths.partition_point(|&blocks| self.kv_cache.has_room_for(&keys[..blocks]));
        let Some(&blocks) = fitting.checked_sub(1).and_then(|last| cache_hit_lengths.get(last)) else {
            return Vec::new();
        };
        self.version.0 += 1;
        let Some(sequence) = self.sequences.get(&id) else { return Vec::new() };
        self.kv_cache.restore(&sequence.cache.hashes, &sequence.tokens, blocks)
    }

    /// The hashes of the blocks that a waiting sequence need not compute if they are cached.
    fn lookup_hashes(&self, id: SequenceId) -> Option<&[BlockHash]> {
        let sequence = self.sequences.get(&id).filter(|sequence| sequence.phase == Phase::Waiting)?;
        let most = (sequence.tokens.len() - 1) / self.settings.block_size;
        sequence.cache.hashes.all().get(..most)
    }
}
