//! What memory there will be once a plan in the making is begun.

use std::collections::BTreeMap;

use omnibus_kv::{BlockId, BlockTable, CacheKind};

use crate::memory::{Memory, Partial};
use crate::prefix::BlockKey;

/// Counts of blocks as the plan so far will leave them.
#[derive(Debug, Clone)]
pub(super) struct Forecast<'a> {
    memory: &'a Memory,
    /// Blocks of each group that nobody holds. Below zero when more were found than are left, until room is made.
    available: Vec<i64>,
    /// Holders that the plan adds to a block, or takes from it.
    changes: BTreeMap<(usize, BlockId), i64>,
}

impl<'a> Forecast<'a> {
    /// A plan that does nothing yet.
    pub(super) fn new(memory: &'a Memory) -> Self {
        let available = memory.groups().map(|(_, pool)| pool.available() as i64).collect();
        Self { memory, available, changes: BTreeMap::new() }
    }

    /// True when some group has nothing left.
    pub(super) fn is_full(&self) -> bool {
        self.available.iter().any(|available| *available <= 0)
    }

    /// For each group, the position up to which a sequence can compute that holds blocks up to the logical block
    /// in `held`.
    pub(super) fn reaches(
        &self,
        held: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = (CacheKind, usize)> {
        self.memory.groups().zip(held).zip(&self.available).map(|(((kind, _), held), available)| {
            let more = usize::try_from(*available);
            (kind, more.map_or(0, |more| kind.tokens_in(self.memory.block_size(), held + more)))
        })
    }

    /// Adds blocks that will be available when the step in flight is done.
    pub(super) fn add(&mut self, coming: &[usize]) {
        self.available.iter_mut().zip(coming).for_each(|(available, coming)| *available += *coming as i64);
    }

    /// Takes the blocks that positions up to `end` lack, and a state slot for each sample.
    pub(super) fn take(&mut self, held: impl Iterator<Item = usize>, end: usize, samples: usize) {
        for ((available, (kind, _)), held) in self.available.iter_mut().zip(self.memory.groups()).zip(held) {
            let blocks = kind.blocks_for(self.memory.block_size(), end);
            let blocks = if kind.is_state() { blocks.max(samples) } else { blocks };
            let missing = blocks.saturating_sub(held) as i64;
            assert!(missing <= *available, "room is counted before it is taken");
            *available -= missing;
        }
    }

    /// State slots that draft tokens can have: those that nobody holds, of the group that has fewest.
    pub(super) fn free_state_slots(&self) -> usize {
        let groups = self.memory.groups().zip(&self.available).filter(|((kind, _), _)| kind.is_state());
        groups.map(|(_, available)| usize::try_from(*available).unwrap_or(0)).min().unwrap_or(usize::MAX)
    }

    /// True when a sequence that takes up after all of these keys finds a slot for its own state beside the one it
    /// copies.
    pub(super) fn can_lend(&self, keys: &[BlockKey]) -> bool {
        let states = self.memory.adoptable(keys).filter(|(group, _)| self.memory.is_state(*group));
        states
            .into_iter()
            .all(|(group, slot)| self.available[group] > i64::from(self.holders(group, slot) == 0))
    }

    /// Counts on the blocks that were found for a sequence.
    pub(super) fn adopt(&mut self, keys: &[BlockKey], start: usize) {
        for (group, block) in self.memory.adoptable_at(keys, start) {
            self.hold(group, block);
        }
    }

    /// Counts on the blocks that a sequence copies the beginning of.
    pub(super) fn borrow(&mut self, partial: &Partial) {
        for (group, block) in self.memory.with_key(partial.key) {
            self.hold(group, block);
        }
    }

    fn hold(&mut self, group: usize, block: BlockId) {
        if self.holders(group, block) == 0 {
            self.available[group] -= 1;
        }
        *self.changes.entry((group, block)).or_default() += 1;
    }

    /// Counts on everything a sequence holds.
    pub(super) fn release(&mut self, tables: &[BlockTable]) {
        for (group, table) in tables.iter().enumerate() {
            for &block in &table.blocks {
                *self.changes.entry((group, block)).or_default() -= 1;
                if self.holders(group, block) == 0 {
                    self.available[group] += 1;
                }
            }
        }
    }

    /// How many of these blocks would be available if their holder let go of them.
    pub(super) fn releasable(&self, group: usize, blocks: &[BlockId]) -> usize {
        blocks.iter().filter(|&&block| self.holders(group, block) == 1).count()
    }

    fn holders(&self, group: usize, block: BlockId) -> i64 {
        let pool = self.memory.groups().nth(group).map(|(_, pool)| pool);
        let now = pool.map_or(0, |pool| pool.holders(block));
        i64::from(now) + self.changes.get(&(group, block)).copied().unwrap_or(0)
    }
}
