//! Counts the blocks of one layer group: who holds them, and what can be found in those that nobody holds.
//!
//! Invariant: a block is free, idle (nobody holds it, its content can be found) or held by one or more. Content
//! never changes while it can be found, nor while two hold it.

use std::collections::{BTreeMap, BTreeSet};

use omnibus_kv::BlockId;

use crate::GroupStats;
use crate::prefix::BlockKey;

/// The blocks of one layer group.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    /// Handed out from the end, lowest first at the beginning, so that equal histories give equal tables.
    free: Vec<BlockId>,
    /// In the order in which they are forgotten: least recently held first, those that are pinned last.
    idle: BTreeMap<(Tier, u64), BlockId>,
    index: BTreeMap<BlockKey, BlockId>,
    /// Blocks that became idle so far: the clock of `idle`.
    idled: u64,
    /// Those that became findable since somebody asked, oldest first.
    fresh: BTreeSet<(u64, BlockId)>,
    /// Blocks that became findable so far: the clock of `fresh`.
    sealed: u64,
}

/// What becomes of a block that nobody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Loose,
    Pinned,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    holders: u32,
    /// Sessions that want it kept.
    pins: u32,
    key: Option<BlockKey>,
    /// Its place in `idle`, while it is there.
    stamp: u64,
    /// Which sealing made it findable.
    seal: u64,
}

impl Pool {
    /// `total` free blocks.
    pub(crate) fn new(total: u32) -> Self {
        let free = (0..total).rev().map(BlockId).collect();
        Self {
            slots: vec![Slot::default(); total as usize],
            free,
            idle: BTreeMap::new(),
            index: BTreeMap::new(),
            idled: 0,
            fresh: BTreeSet::new(),
            sealed: 0,
        }
    }

    /// Blocks there are.
    pub(crate) fn total(&self) -> usize {
        self.slots.len()
    }

    /// Blocks that can be taken.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Sequences that hold the block.
    pub(crate) fn holders(&self, block: BlockId) -> u32 {
        self.slot(block).holders
    }

    /// True when one sequence holds the block and nobody can find it: only then may it be written.
    pub(crate) fn is_private(&self, block: BlockId) -> bool {
        let slot = self.slot(block);
        slot.holders == 1 && slot.key.is_none()
    }

    /// The block with this content.
    pub(crate) fn find(&self, key: &BlockKey) -> Option<BlockId> {
        self.index.get(key).copied()
    }

    /// Blocks that can be found.
    pub(crate) fn findable(&self) -> usize {
        self.index.len()
    }

    /// Takes a block nobody holds. What has been idle longest is forgotten once nothing is free, and named.
    pub(crate) fn take(&mut self) -> (BlockId, Option<BlockKey>) {
        let (block, forgotten) = match self.free.pop() {
            Some(block) => (block, None),
            None => self.evict(),
        };
        self.slot_mut(block).holders = 1;
        (block, forgotten)
    }

    /// Adds a holder to a block that was found.
    pub(crate) fn share(&mut self, block: BlockId) {
        let slot = &mut self.slots[block.0 as usize];
        assert!(slot.key.is_some(), "{block:?} was found by its content");
        if slot.holders == 0 {
            let idle = self.idle.remove(&slot.place());
            assert_eq!(idle, Some(block), "a block that nobody holds and that can be found is idle");
        }
        slot.holders += 1;
    }

    /// Removes a holder.
    pub(crate) fn release(&mut self, block: BlockId) {
        let stamp = self.idled;
        let slot = self.slot_mut(block);
        assert!(slot.holders > 0, "{block:?} is held by nobody");
        slot.holders -= 1;
        if slot.holders > 0 {
            return;
        }
        if slot.key.is_none() {
            self.free.push(block);
            return;
        }
        slot.stamp = stamp;
        let place = slot.place();
        self.idle.insert(place, block);
        self.idled += 1;
    }

    /// Lets all loose blocks be forgotten before this one, which was found by its content. The number names the
    /// content, for [`Self::unpin`].
    pub(crate) fn pin(&mut self, block: BlockId) -> u64 {
        assert!(self.slot(block).key.is_some(), "{block:?} was found by its content");
        self.change_pins(block, |pins| pins + 1);
        self.slot(block).seal
    }

    /// Takes a pin back, if the block still has the content that was pinned.
    pub(crate) fn unpin(&mut self, block: BlockId, seal: u64) {
        if self.has(block, seal) {
            self.change_pins(block, |pins| pins - 1);
        }
    }

    /// True while the block has the content that was pinned.
    pub(crate) fn has(&self, block: BlockId, seal: u64) -> bool {
        let slot = self.slot(block);
        slot.key.is_some() && slot.seal == seal
    }

    fn change_pins(&mut self, block: BlockId, change: impl Fn(u32) -> u32) {
        let slot = &mut self.slots[block.0 as usize];
        let before = slot.place();
        slot.pins = change(slot.pins);
        let after = slot.place();
        if slot.holders == 0 {
            self.idle.remove(&before);
            self.idle.insert(after, block);
        }
    }

    /// Makes a full block findable. Of two with the same content, the first stays the one that is found.
    pub(crate) fn seal(&mut self, block: BlockId, key: BlockKey) {
        if self.index.contains_key(&key) {
            return;
        }
        assert!(self.is_private(block), "{block:?} was written by one sequence, and is sealed once");
        let seal = self.sealed;
        let slot = self.slot_mut(block);
        (slot.key, slot.seal) = (Some(key), seal);
        self.index.insert(key, block);
        self.fresh.insert((seal, block));
        self.sealed += 1;
    }

    /// Like [`Self::seal`], for content that shall not be stored elsewhere: nobody is told of it.
    pub(crate) fn seal_quietly(&mut self, block: BlockId, key: BlockKey) {
        self.seal(block, key);
        self.no_longer_fresh(block);
    }

    /// The oldest block that became findable, still is and has not been named here before.
    pub(crate) fn next_fresh(&mut self) -> Option<(BlockId, BlockKey)> {
        let (_, block) = self.fresh.pop_first()?;
        Some((block, self.slot(block).key?))
    }

    /// True for a block that became findable and was not named since.
    pub(crate) fn is_fresh(&self, block: BlockId) -> bool {
        self.fresh.contains(&(self.slot(block).seal, block))
    }

    /// A block has been named otherwise than by [`Self::next_fresh`].
    pub(crate) fn no_longer_fresh(&mut self, block: BlockId) {
        let seal = self.slot(block).seal;
        self.fresh.remove(&(seal, block));
    }

    /// How full it is.
    pub(crate) fn stats(&self) -> GroupStats {
        let pinned = self.idle.range((Tier::Pinned, 0)..).count();
        let used = self.total() - self.available();
        GroupStats { used, cached: self.idle.len(), pinned, total: self.total() }
    }

    /// Panics if a block is lost, or if `holders` or `pins` (of each block) is not what was counted.
    pub(crate) fn audit(&self, holders: &[u32], pins: &[u32]) {
        let mut resting = vec![0; self.total()];
        for block in self.free.iter().chain(self.idle.values()) {
            resting[block.0 as usize] += 1;
        }
        for (at, slot) in self.slots.iter().enumerate() {
            assert_eq!(slot.holders, holders[at], "block {at} is counted wrong");
            assert_eq!(slot.pins, pins[at], "block {at} is pinned by more or fewer than it should");
            assert_eq!(resting[at], usize::from(slot.holders == 0), "block {at} is lost or in two places");
            if let Some(key) = slot.key {
                assert_eq!(self.find(&key), Some(BlockId(at as u32)), "block {at} cannot be found");
            }
        }
        for (seal, block) in &self.fresh {
            let slot = self.slot(*block);
            assert!(slot.key.is_some() && slot.seal == *seal, "{block:?} is news, and cannot be found");
        }
        let keyed = self.slots.iter().filter(|slot| slot.key.is_some()).count();
        assert_eq!(keyed, self.index.len(), "something is found that was forgotten");
        assert!(self.free.iter().all(|&block| self.slot(block).key.is_none()), "a free block can be found");
    }

    fn evict(&mut self) -> (BlockId, Option<BlockKey>) {
        let oldest = self.idle.pop_first();
        assert!(oldest.is_some(), "a plan takes no more blocks than there are");
        let block = oldest.map_or(BlockId(0), |(_, block)| block);
        let slot = self.slot_mut(block);
        let (key, seal) = (slot.key.take(), slot.seal);
        slot.pins = 0;
        if let Some(key) = key {
            self.index.remove(&key);
        }
        self.fresh.remove(&(seal, block));
        (block, key)
    }

    fn slot(&self, block: BlockId) -> &Slot {
        &self.slots[block.0 as usize]
    }

    fn slot_mut(&mut self, block: BlockId) -> &mut Slot {
        &mut self.slots[block.0 as usize]
    }
}

impl Slot {
    /// Its place among the idle, while it is there.
    fn place(&self) -> (Tier, u64) {
        (if self.pins > 0 { Tier::Pinned } else { Tier::Loose }, self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use crate::prefix::Chain;

    fn key(salt: u64) -> BlockKey {
        let mut chain = Chain::new(&Request { cache_salt: salt, ..Request::new(vec![], 1) }, 1);
        chain.extend(&[7]);
        chain.keys()[0]
    }

    #[test]
    fn a_block_found_again_is_not_handed_out() {
        let mut pool = Pool::new(2);
        let [first, second] = [pool.take().0, pool.take().0];
        pool.seal(first, key(1));
        pool.seal(second, key(2));
        pool.release(first);
        pool.release(second);
        pool.share(first);
        assert_eq!(pool.take(), (second, Some(key(2))), "the other one was idle");
        assert_eq!(pool.find(&key(2)), None, "and is forgotten");
        assert_eq!(pool.find(&key(1)), Some(first));
        pool.audit(&[1, 1], &[0, 0]);
    }

    #[test]
    fn what_is_pinned_is_forgotten_last() {
        let mut pool = Pool::new(3);
        let [first, second, third] = [pool.take().0, pool.take().0, pool.take().0];
        [first, second, third].iter().zip(1..).for_each(|(&block, salt)| pool.seal(block, key(salt)));
        let seal = pool.pin(first);
        let twice = pool.pin(second);
        assert_eq!(pool.pin(second), twice);
        [first, second, third].iter().for_each(|&block| pool.release(block));
        pool.unpin(second, twice);
        assert_eq!(pool.stats().pinned, 2, "another still wants the second");
        assert_eq!([pool.take().0, pool.take().0], [third, first]);
        pool.unpin(first, seal);
        pool.seal(first, key(4));
        pool.unpin(first, seal);
        pool.audit(&[1, 0, 1], &[0, 1, 0]);
    }

    #[test]
    fn the_longest_idle_goes_first_and_the_free_before_it() {
        let mut pool = Pool::new(3);
        let [first, second, third] = [pool.take().0, pool.take().0, pool.take().0];
        pool.seal(first, key(1));
        pool.seal(second, key(2));
        [second, first, third].iter().for_each(|&block| pool.release(block));
        assert_eq!([pool.take().0, pool.take().0, pool.take().0], [third, second, first]);
    }

    #[test]
    #[should_panic(expected = "no more blocks than there are")]
    fn an_empty_pool_gives_nothing() {
        let mut pool = Pool::new(1);
        pool.take();
        pool.take();
    }
}
