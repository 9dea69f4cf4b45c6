//! What a slower tier of storage needs: what to keep, what to fetch for whom, and where to put it.
//!
//! The engine writes what [`Scheduler::take_newly_cached`] names to the tier. For a sequence that waits, [`Scheduler::missing_blocks`] says
//! what of the tier would help it; while that is read, [`Scheduler::hold`] keeps the sequence in the queue, and
//! [`Scheduler::restore`] then says where the content goes.
//!
//! Invariant: what a step in flight uses is never handed out here, and neither is what the sequence needs.

use omnibus_kv::BlockId;

use super::Scheduler;
use crate::prefix::BlockKey;
use crate::sequence::{Hold, Phase, Sequence};
use crate::{CachedBlock, SequenceId};

impl Scheduler {
    /// At most `most` blocks that became findable, still are and have not been named here before, each group's oldest
    /// first. Their content is final and stays until the next [`Self::apply`] or [`Self::restore`]. What was restored
    /// is not among them.
    pub fn take_newly_cached(&mut self, most: usize) -> Vec<CachedBlock> {
        self.memory.drain_fresh(most)
    }

    /// For a sequence that waits: the blocks, by group and key and in order, that are missing for it to take up as
    /// late as it could if everything that `stored` has were here. Empty if the tier does not help it.
    pub fn missing_blocks(&self, id: SequenceId, stored: impl Fn(usize, u128) -> bool) -> Vec<(usize, u128)> {
        let Some(keys) = self.reusable_keys(id) else { return Vec::new() };
        let here = self.memory.reusable(keys, keys.len());
        let there = self.memory.takeoffs(keys, keys.len(), |group, key| stored(group, key.0), |_| {});
        let Some(blocks) = there.filter(|there| *there > here) else { return Vec::new() };
        self.memory.missing(&keys[..blocks]).into_iter().map(|(group, at)| (group, keys[at].0)).collect()
    }

    /// Keeps a sequence that waits from being planned, until [`Self::release_hold`]. It can still expire, be
    /// cancelled and be overtaken. Nothing happens to one that does not wait.
    pub fn hold(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).filter(|sequence| sequence.phase == Phase::Waiting);
        if let Some(sequence) = sequence {
            sequence.hold = Hold::Now;
            self.now_at.0 += 1;
        }
    }

    /// Lets a held sequence be planned. Nothing happens to others.
    pub fn release_hold(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(&id).filter(|sequence| sequence.is_held()) {
            sequence.hold = Hold::Released;
            self.now_at.0 += 1;
        }
    }

    /// The keys of a sequence's full blocks, in order. None if it is not there, or nothing is shared.
    pub fn block_hashes(&self, id: SequenceId) -> Vec<u128> {
        let sequence = self.sequences.get(&id);
        sequence.map_or_else(Vec::new, |sequence| sequence.chain.keys().iter().map(|key| key.0).collect())
    }

    /// Where the block of a key is in a group. Its content stays until the next [`Self::apply`] or [`Self::restore`].
    pub fn find_cached_block(&self, group: usize, key: u128) -> Option<BlockId> {
        self.memory.groups().nth(group).and_then(|(_, pool)| pool.find(&BlockKey(key)))
    }

    /// True while a sequence is kept from being planned.
    pub fn is_held(&self, id: SequenceId) -> bool {
        self.sequences.get(&id).is_some_and(Sequence::is_held)
    }

    /// Makes what `loaded` has findable for a sequence that waits, as much as helps it and fits. The engine writes the
    /// content of these blocks before the next [`Self::apply`], after all that was launched so far. Nobody holds
    /// them, so they may be forgotten again before the sequence is admitted.
    pub fn restore(&mut self, id: SequenceId, loaded: impl Fn(usize, u128) -> bool) -> Vec<CachedBlock> {
        let Some(keys) = self.reusable_keys(id) else { return Vec::new() };
        let here = self.memory.reusable(keys, keys.len());
        let mut takeoffs = Vec::new();
        let visit = |blocks| takeoffs.extend((blocks > here).then_some(blocks));
        self.memory.takeoffs(keys, keys.len(), |group, key| loaded(group, key.0), visit);
        let fitting = takeoffs.partition_point(|&blocks| self.memory.has_room_for(&keys[..blocks]));
        let Some(&blocks) = fitting.checked_sub(1).and_then(|last| takeoffs.get(last)) else {
            return Vec::new();
        };
        self.now_at.0 += 1;
        let Some(sequence) = self.sequences.get(&id) else { return Vec::new() };
        self.memory.restore(&sequence.chain, &sequence.tokens, blocks)
    }

    /// The keys of the blocks that a sequence that waits need not compute if they are found.
    fn reusable_keys(&self, id: SequenceId) -> Option<&[BlockKey]> {
        let sequence = self.sequences.get(&id).filter(|sequence| sequence.phase == Phase::Waiting)?;
        let most = (sequence.tokens.len() - 1) / self.settings.block_size;
        sequence.chain.keys().get(..most)
    }
}
