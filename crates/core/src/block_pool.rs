//! The blocks of one layer group: free, in use and cached.
//!
//! Invariant: a block is free, evictable (cached, without references) or referenced. Content never changes while it is
//! cached, nor with two references.

use std::collections::{BTreeMap, BTreeSet};

use omnibus_kv::BlockId;
use rustc_hash::FxHashMap;

use crate::prefix::BlockHash;
use crate::stats::GroupStats;

/// The blocks of one layer group.
#[derive(Debug, Clone)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    /// Allocated from the end, lowest first at the beginning, so that equal histories give equal tables.
    free: Vec<BlockId>,
    /// In the order of eviction: least recently used first, pinned blocks last.
    evictable: BTreeMap<(EvictionClass, u64), BlockId>,
    index: FxHashMap<BlockHash, BlockId>,
    /// Number of releases so far: the clock of `evictable`.
    freed: u64,
    /// Blocks that became cached since the last [`Self::pop_newly_cached`], oldest first.
    newly_cached: BTreeSet<(u64, BlockId)>,
    /// Blocks that became cached so far: the clock of `newly_cached`.
    epoch: u64,
}

/// The eviction order of a block without references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionClass {
    Unpinned,
    Pinned,
}

#[derive(Debug, Clone, Default)]
struct Block {
    ref_count: u32,
    /// Number of sessions that pin it.
    pins: u32,
    hash: Option<BlockHash>,
    /// Its place in `evictable`, while it is there.
    stamp: u64,
    /// The epoch in which it became cached.
    epoch: u64,
}

impl BlockPool {
    /// `total` free blocks.
    pub(crate) fn new(total: u32) -> Self {
        let free = (0..total).rev().map(BlockId).collect();
        Self {
            blocks: vec![Block::default(); total as usize],
            free,
            evictable: BTreeMap::new(),
            index: FxHashMap::default(),
            freed: 0,
            newly_cached: BTreeSet::new(),
            epoch: 0,
        }
    }

    /// All blocks.
    pub(crate) fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that can be allocated: free or evictable.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.evictable.len()
    }

    /// References to the block.
    pub(crate) fn ref_count(&self, block: BlockId) -> u32 {
        self.slot(block).ref_count
    }

    /// True for one reference to a block that is not cached: only then may it be written.
    pub(crate) fn is_exclusive(&self, block: BlockId) -> bool {
        let slot = self.slot(block);
        slot.ref_count == 1 && slot.hash.is_none()
    }

    /// The cached block with this content.
    pub(crate) fn find(&self, hash: &BlockHash) -> Option<BlockId> {
        self.index.get(hash).copied()
    }

    /// Number of cached blocks.
    pub(crate) fn cached(&self) -> usize {
        self.index.len()
    }

    /// Allocates a free block, or evicts the least recently used one and returns its hash.
    pub(crate) fn allocate(&mut self) -> (BlockId, Option<BlockHash>) {
        let (block, evicted) = match self.free.pop() {
            Some(block) => (block, None),
            None => self.evict(),
        };
        self.slot_mut(block).ref_count = 1;
        (block, evicted)
    }

    /// Adds a reference to a cached block.
    pub(crate) fn incref(&mut self, block: BlockId) {
        let slot = &mut self.blocks[block.0 as usize];
        assert!(slot.hash.is_some(), "{block:?} was found by its content");
        if slot.ref_count == 0 {
            let evictable = self.evictable.remove(&slot.place());
            assert_eq!(evictable, Some(block), "a cached block without references is evictable");
        }
        slot.ref_count += 1;
    }

    /// Removes a reference.
    pub(crate) fn decref(&mut self, block: BlockId) {
        let stamp = self.freed;
        let slot = self.slot_mut(block);
        assert!(slot.ref_count > 0, "{block:?} has no references");
        slot.ref_count -= 1;
        if slot.ref_count > 0 {
            return;
        }
        if slot.hash.is_none() {
            self.free.push(block);
            return;
        }
        slot.stamp = stamp;
        let place = slot.place();
        self.evictable.insert(place, block);
        self.freed += 1;
    }

    /// Pins a cached block: all unpinned blocks are evicted before it. Returns the content's epoch, for [`Self::unpin`].
    pub(crate) fn pin(&mut self, block: BlockId) -> u64 {
        assert!(self.slot(block).hash.is_some(), "{block:?} was found by its content");
        self.change_pins(block, |pins| pins + 1);
        self.slot(block).epoch
    }

    /// Removes a pin, if the block still has the pinned content.
    pub(crate) fn unpin(&mut self, block: BlockId, epoch: u64) {
        if self.has(block, epoch) {
            self.change_pins(block, |pins| pins - 1);
        }
    }

    /// True while the block has the pinned content.
    pub(crate) fn has(&self, block: BlockId, epoch: u64) -> bool {
        let slot = self.slot(block);
        slot.hash.is_some() && slot.epoch == epoch
    }

    fn change_pins(&mut self, block: BlockId, change: impl Fn(u32) -> u32) {
        let slot = &mut self.blocks[block.0 as usize];
        let before = slot.place();
        slot.pins = change(slot.pins);
        let after = slot.place();
        if slot.ref_count == 0 {
            self.evictable.remove(&before);
            self.evictable.insert(after, block);
        }
    }

    /// Caches a full block. Of two with the same content, the first stays cached.
    pub(crate) fn cache_block(&mut self, block: BlockId, hash: BlockHash) {
        if self.index.contains_key(&hash) {
            return;
        }
        assert!(self.is_exclusive(block), "{block:?} was written by one sequence, and is cached once");
        let epoch = self.epoch;
        let slot = self.slot_mut(block);
        (slot.hash, slot.epoch) = (Some(hash), epoch);
        self.index.insert(hash, block);
        self.newly_cached.insert((epoch, block));
        self.epoch += 1;
    }

    /// Like [`Self::cache_block`], for content that is offloaded already: it is not newly cached.
    pub(crate) fn cache_offloaded_block(&mut self, block: BlockId, hash: BlockHash) {
        self.cache_block(block, hash);
        self.mark_offloaded(block);
    }

    /// The oldest newly cached block that still is cached and was not returned before.
    pub(crate) fn pop_newly_cached(&mut self) -> Option<(BlockId, BlockHash)> {
        let (_, block) = self.newly_cached.pop_first()?;
        Some((block, self.slot(block).hash?))
    }

    /// True for a newly cached block that was not returned since.
    pub(crate) fn is_newly_cached(&self, block: BlockId) -> bool {
        self.newly_cached.contains(&(self.slot(block).epoch, block))
    }

    /// A block was offloaded without [`Self::pop_newly_cached`].
    pub(crate) fn mark_offloaded(&mut self, block: BlockId) {
        let epoch = self.slot(block).epoch;
        self.newly_cached.remove(&(epoch, block));
    }

    /// Statistics of the pool.
    pub(crate) fn stats(&self) -> GroupStats {
        let pinned = self.evictable.range((EvictionClass::Pinned, 0)..).count();
        let used = self.total() - self.available();
        GroupStats { used, cached: self.evictable.len(), pinned, total: self.total() }
    }

    /// Panics if a block is lost, or if the references or pins of a block differ from `ref_count` or `pins`.
    pub(crate) fn audit(&self, ref_count: &[u32], pins: &[u32]) {
        let mut resting = vec![0; self.total()];
        for block in self.free.iter().chain(self.evictable.values()) {
            resting[block.0 as usize] += 1;
        }
        for (at, slot) in self.blocks.iter().enumerate() {
            assert_eq!(slot.ref_count, ref_count[at], "block {at} has a wrong reference count");
            assert_eq!(slot.pins, pins[at], "block {at} is pinned by more or fewer than it should");
            assert_eq!(resting[at], usize::from(slot.ref_count == 0), "block {at} is lost or in two places");
            if let Some(hash) = slot.hash {
                assert_eq!(self.find(&hash), Some(BlockId(at as u32)), "block {at} is not in the index");
            }
        }
        for (epoch, block) in &self.newly_cached {
            let slot = self.slot(*block);
            assert!(slot.hash.is_some() && slot.epoch == *epoch, "{block:?} is newly cached, and not cached");
        }
        let hashed = self.blocks.iter().filter(|slot| slot.hash.is_some()).count();
        assert_eq!(hashed, self.index.len(), "an evicted block is in the index");
        assert!(self.free.iter().all(|&block| self.slot(block).hash.is_none()), "a free block is cached");
    }

    fn evict(&mut self) -> (BlockId, Option<BlockHash>) {
        let oldest = self.evictable.pop_first();
        assert!(oldest.is_some(), "a plan takes no more blocks than there are");
        let block = oldest.map_or(BlockId(0), |(_, block)| block);
        let slot = self.slot_mut(block);
        let (hash, epoch) = (slot.hash.take(), slot.epoch);
        slot.pins = 0;
        if let Some(hash) = hash {
            self.index.remove(&hash);
        }
        self.newly_cached.remove(&(epoch, block));
        (block, hash)
    }

    fn slot(&self, block: BlockId) -> &Block {
        &self.blocks[block.0 as usize]
    }

    fn slot_mut(&mut self, block: BlockId) -> &mut Block {
        &mut self.blocks[block.0 as usize]
    }
}

impl Block {
    /// Its place in the eviction order.
    fn place(&self) -> (EvictionClass, u64) {
        (if self.pins > 0 { EvictionClass::Pinned } else { EvictionClass::Unpinned }, self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::BlockHashes;
    use crate::request::Request;

    fn key(salt: u128) -> BlockHash {
        let mut hashes = BlockHashes::new(&Request { cache_salt: salt, ..Request::new(vec![], 1) }, 1);
        hashes.extend(&[7]);
        hashes.all()[0]
    }

    #[test]
    fn a_cache_hit_is_not_allocated() {
        let mut pool = BlockPool::new(2);
        let [first, second] = [pool.allocate().0, pool.allocate().0];
        pool.cache_block(first, key(1));
        pool.cache_block(second, key(2));
        pool.decref(first);
        pool.decref(second);
        pool.incref(first);
        assert_eq!(pool.allocate(), (second, Some(key(2))), "the other one was evictable");
        assert_eq!(pool.find(&key(2)), None, "and is evicted");
        assert_eq!(pool.find(&key(1)), Some(first));
        pool.audit(&[1, 1], &[0, 0]);
    }

    #[test]
    fn pinned_blocks_are_evicted_last() {
        let mut pool = BlockPool::new(3);
        let [first, second, third] = [pool.allocate().0, pool.allocate().0, pool.allocate().0];
        [first, second, third].iter().zip(1..).for_each(|(&block, salt)| pool.cache_block(block, key(salt)));
        let epoch = pool.pin(first);
        let twice = pool.pin(second);
        assert_eq!(pool.pin(second), twice);
        [first, second, third].iter().for_each(|&block| pool.decref(block));
        pool.unpin(second, twice);
        assert_eq!(pool.stats().pinned, 2, "another session pins the second");
        assert_eq!([pool.allocate().0, pool.allocate().0], [third, first]);
        pool.unpin(first, epoch);
        pool.cache_block(first, key(4));
        pool.unpin(first, epoch);
        pool.audit(&[1, 0, 1], &[0, 1, 0]);
    }

    #[test]
    fn free_blocks_are_allocated_before_least_recently_used_ones() {
        let mut pool = BlockPool::new(3);
        let [first, second, third] = [pool.allocate().0, pool.allocate().0, pool.allocate().0];
        pool.cache_block(first, key(1));
        pool.cache_block(second, key(2));
        [second, first, third].iter().for_each(|&block| pool.decref(block));
        assert_eq!([pool.allocate().0, pool.allocate().0, pool.allocate().0], [third, second, first]);
    }

    #[test]
    #[should_panic(expected = "no more blocks than there are")]
    fn an_empty_pool_panics() {
        let mut pool = BlockPool::new(1);
        pool.allocate();
        pool.allocate();
    }
}
