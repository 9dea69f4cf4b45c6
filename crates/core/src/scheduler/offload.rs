//! The scheduler's side of offload tiers: which blocks to store, which to load, and where to put them.
//!
//! The engine stores the blocks of [`Scheduler::take_newly_cached`] in a tier. For a waiting sequence,
//! [`Scheduler::missing_blocks`] names the blocks that would extend its cache hit; while they are read,
//! [`Scheduler::hold`] keeps the sequence in the queue, and [`Scheduler::restore`] then says where the content goes.
//! When a preempted sequence is planned again, [`Scheduler::newly_admitted`] names it, the engine restores its offloaded
//! blocks, and plans once more.
//!
//! Invariant: never returns a block that a step in flight uses, nor one of the sequence's cache hit. A preempted sequence
//! is looked up once; so no sequence waits for another's blocks, and no block moves back and forth without a step
//! between.

use std::collections::BTreeSet;

use omnibus_kv::BlockId;

use super::Scheduler;
use crate::cost::Transfer;
use crate::kv_cache::CacheEvent;
use crate::plan::{CachedBlock, Plan};
use crate::prefix::BlockHash;
use crate::request::{SequenceId, Tick};
use crate::sequence::{HoldReason, Phase, Sequence, SequenceCache};

/// A store of blocks outside of the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OffloadTier {
    /// Host memory.
    Host,
    /// A disk.
    Disk,
    /// Another replica.
    Peer,
}

impl Scheduler {
    /// At most `most` newly cached blocks that are still cached and were not returned before, each group's oldest first.
    /// Their content is final and stays until the next [`Self::apply`] or [`Self::restore`]. Restored blocks are not
    /// among them.
    pub fn take_newly_cached(&mut self, most: usize) -> Vec<CachedBlock> {
        self.kv_cache.take_newly_cached(most)
    }

    /// What the prefix cache stored and evicted since the last call, oldest first. Empty unless the settings keep events.
    pub fn take_cache_events(&mut self) -> Vec<CacheEvent> {
        self.kv_cache.take_events()
    }

    /// For a waiting sequence: the blocks, by group and hash and in order, that are missing for its longest cache hit if
    /// all blocks in `stored` were cached. Empty if the tier does not extend the hit.
    pub fn missing_blocks(&self, id: SequenceId, stored: impl Fn(usize, u128) -> bool) -> Vec<(usize, u128)> {
        let Some((cache, most)) = self.lookup(id) else { return Vec::new() };
        let here = self.kv_cache.longest_usable_hit(cache, most);
        let there = self.kv_cache.longest_usable_hit_with(cache, most, |group, hash| stored(group, hash.0));
        let hashes = cache.hashes.all();
        if there <= here {
            return Vec::new();
        }
        let missing = self.kv_cache.missing(&hashes[..there]).into_iter();
        missing.map(|(group, at)| (group, hashes[at].0)).collect()
    }

    /// Keeps a waiting sequence from being planned, until [`Self::release_hold`] for the same reason. It can still expire,
    /// be cancelled and be overtaken. No effect on other sequences.
    pub fn hold(&mut self, id: SequenceId, reason: HoldReason) {
        if self.sequences.hold(id, reason) {
            self.version.0 += 1;
        }
    }

    /// Lets a held sequence be planned again, unless it is held for another reason. No effect on others.
    pub fn release_hold(&mut self, id: SequenceId, reason: HoldReason) {
        if self.sequences.release_hold(id, reason) {
            self.version.0 += 1;
        }
    }

    /// True while a sequence has no blocks: before it is admitted, and after it was preempted.
    pub fn is_waiting(&self, id: SequenceId) -> bool {
        self.sequences.get(id).is_some_and(|sequence| sequence.phase == Phase::Waiting)
    }

    /// True while a sequence is held.
    pub fn is_held(&self, id: SequenceId) -> bool {
        self.sequences.get(id).is_some_and(|sequence| sequence.is_held())
    }

    /// The hashes of a sequence's full blocks, in order. Empty for an unknown sequence, or without prefix caching.
    pub fn block_hashes(&self, id: SequenceId) -> Vec<u128> {
        let hashes = self.sequences.get(id).map(|sequence| sequence.cache.hashes.all());
        hashes.unwrap_or_default().iter().map(|hash| hash.0).collect()
    }

    /// The block of a hash in a group. Its content stays until the next [`Self::apply`] or [`Self::restore`].
    pub fn find_cached_block(&self, group: usize, hash: u128) -> Option<BlockId> {
        self.kv_cache.find(group, BlockHash(hash))
    }

    /// Allocates cached blocks for what `loaded` has, as many as extend a waiting sequence's cache hit and fit. The
    /// engine writes their content before the next [`Self::apply`], after all launched steps. They have no references,
    /// so they may be evicted before the sequence is admitted.
    pub fn restore(&mut self, id: SequenceId, loaded: impl Fn(usize, u128) -> bool) -> Vec<CachedBlock> {
        let Some((cache, most)) = self.lookup(id) else { return Vec::new() };
        let hashes = cache.hashes.all();
        let here = self.kv_cache.longest_usable_hit(cache, most);
        let mut lengths = self.kv_cache.usable_hits_with(cache, most, |group, hash| loaded(group, hash.0));
        lengths.retain(|blocks| *blocks > here);
        let fitting = lengths.partition_point(|&blocks| self.kv_cache.has_room_for(&hashes[..blocks]));
        let Some(&blocks) = fitting.checked_sub(1).and_then(|last| lengths.get(last)) else {
            return Vec::new();
        };
        self.version.0 += 1;
        let Some(sequence) = self.sequences.get(id) else { return Vec::new() };
        self.kv_cache.restore(&sequence.cache.hashes, &sequence.tokens, blocks)
    }

    /// Whether the [`Self::missing_blocks`] of a waiting sequence should be restored rather than computed again:
    /// whichever is expected to take less time. Without measurements they are restored; each time they are not, the
    /// expected cost of transfers decays a little.
    pub fn is_worth_restoring(&mut self, id: SequenceId, absent: &[(usize, u128, OffloadTier)]) -> bool {
        let Some(sequence) = self.sequences.get(id) else { return false };
        let most = sequence.reusable_tokens().len() / self.settings.block_size;
        let stored: BTreeSet<(usize, u128)> = absent.iter().map(|(group, hash, _)| (*group, *hash)).collect();
        let here = self.kv_cache.longest_usable_hit(&sequence.cache, most);
        let is_stored = |group, hash: BlockHash| stored.contains(&(group, hash.0));
        let there = self.kv_cache.longest_usable_hit_with(&sequence.cache, most, is_stored);
        let positions = here * self.settings.block_size..there * self.settings.block_size;
        let is_worth = self.swaps.is_worth_restoring(absent, &positions, &self.cost);
        if !is_worth {
            self.cost.transfers.doubt();
        }
        is_worth
    }

    /// Learns the time of one transfer.
    pub fn learn_transfer(&mut self, which: Transfer, bytes: u64, took: Tick) {
        self.cost.learn_transfer(which, bytes, took);
    }

    /// Sequences that a plan admits and that were not [`Self::mark_looked_up`] since they last had blocks, in its order.
    pub fn newly_admitted(&self, plan: &Plan) -> Vec<SequenceId> {
        let ids = plan.scheduled.iter().map(|scheduled| scheduled.sequence);
        let is_new = |sequence: &Sequence| sequence.phase == Phase::Waiting && !sequence.offload.is_looked_up;
        ids.filter(|id| self.sequences.get(*id).is_some_and(is_new)).collect()
    }

    /// The offloaded blocks of a sequence have been looked up.
    pub fn mark_looked_up(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(id) {
            sequence.offload.is_looked_up = true;
        }
    }

    /// True while the state is unchanged since the plan was made.
    pub fn is_current(&self, plan: &Plan) -> bool {
        plan.id == self.version
    }

    /// What the prefix cache knows of a waiting sequence, and how many blocks it need not compute if they are cached.
    pub(super) fn lookup(&self, id: SequenceId) -> Option<(&SequenceCache, usize)> {
        let sequence = self.sequences.get(id).filter(|sequence| sequence.phase == Phase::Waiting)?;
        let most = sequence.reusable_tokens().len() / self.settings.block_size;
        let cache = &sequence.cache;
        (most <= cache.hashes.all().len()).then_some((cache, most))
    }
}
