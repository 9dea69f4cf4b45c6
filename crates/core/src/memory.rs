//! The pools of all layer groups, and what is done to them for one sequence at a time.

use crate::pool::Pool;
use crate::prefix::BlockKey;
use crate::table::Holding;
use crate::{BlockId, GroupKind, GroupStats, KeyedBlock, Settings};

/// The pools of all layer groups.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    block_size: usize,
    groups: Vec<(GroupKind, Pool)>,
    shares: bool,
}

impl Memory {
    /// Everything free.
    pub(crate) fn new(settings: &Settings) -> Self {
        let groups = settings.groups.iter().map(|group| (group.kind, Pool::new(group.blocks)));
        Self { block_size: settings.block_size, groups: groups.collect(), shares: settings.shares() }
    }

    /// The kind and pool of each group.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (GroupKind, &Pool)> {
        self.groups.iter().map(|(kind, pool)| (*kind, pool))
    }

    /// True for a group of states.
    pub(crate) fn is_state(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|(kind, _)| *kind == GroupKind::State)
    }

    /// Tokens per block.
    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    /// True when blocks are shared between sequences.
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    /// The longest sequence that can run alone.
    pub(crate) fn longest(&self) -> usize {
        let each = self.groups().map(|(kind, pool)| kind.longest(self.block_size, pool.total()));
        each.min().unwrap_or(0)
    }

    /// What a sequence holds before it is admitted: nothing, in each group.
    pub(crate) fn nothing(&self) -> Vec<Holding> {
        vec![Holding::default(); self.groups.len()]
    }

    /// The most leading blocks, at most `most`, that a sequence with these keys need not compute.
    ///
    /// Taking up at a block needs every block before it in a full group, those the window still sees in a window
    /// group, and the state right there in a state group.
    pub(crate) fn reusable(&self, keys: &[BlockKey], most: usize) -> usize {
        self.takeoffs(keys, most, |_, _| false, |_| {}).unwrap_or(0)
    }

    /// Numbers of leading blocks, at most `most`, after which a sequence with these keys could take up, if the blocks
    /// that `elsewhere` knows (by group and key) were found too. Each is shown to `visit`, ascending; the last
    /// one comes back.
    pub(crate) fn takeoffs(
        &self,
        keys: &[BlockKey],
        most: usize,
        elsewhere: impl Fn(usize, BlockKey) -> bool,
        mut visit: impl FnMut(usize),
    ) -> Option<usize> {
        if !self.shares {
            return None;
        }
        let mut best = None;
        let mut runs = vec![0; self.groups.len()];
        for (at, key) in keys.iter().take(most).enumerate() {
            let blocks = at + 1;
            let mut usable = true;
            for (group, (run, (kind, pool))) in runs.iter_mut().zip(&self.groups).enumerate() {
                *run = if pool.find(key).is_some() || elsewhere(group, *key) { *run + 1 } else { 0 };
                if *kind == GroupKind::Full && *run < blocks {
                    return best;
                }
                usable &= *run >= blocks - kind.first_needed(self.block_size, blocks);
            }
            if usable {
                visit(blocks);
                best = Some(blocks);
            }
        }
        best
    }

    /// The blocks that taking up after all of these keys uses, each with its group.
    pub(crate) fn adoptable(&self, keys: &[BlockKey]) -> impl Iterator<Item = (usize, BlockId)> {
        self.needed(keys).flat_map(move |(group, keys)| {
            let pool = &self.groups[group].1;
            keys.iter().filter_map(move |key| Some((group, pool.find(key)?)))
        })
    }

    /// Shares the blocks of these keys with a sequence that holds nothing yet. States are only lent, each in its
    /// group: the sequence copies them, and gives them back with [`Self::give_back`].
    pub(crate) fn adopt(&mut self, holdings: &mut [Holding], keys: &[BlockKey]) -> Vec<(usize, BlockId)> {
        let mut lent = Vec::new();
        for (group, (holding, (kind, pool))) in holdings.iter_mut().zip(&mut self.groups).enumerate() {
            let first = kind.first_needed(self.block_size, keys.len());
            let found: Vec<BlockId> = keys[first..].iter().filter_map(|key| pool.find(key)).collect();
            assert_eq!(first + found.len(), keys.len(), "what was found is still there");
            found.iter().for_each(|&block| pool.share(block));
            if *kind == GroupKind::State {
                lent.extend(found.into_iter().map(|block| (group, block)));
            } else {
                (holding.first, holding.blocks) = (first, found);
            }
        }
        lent
    }

    /// Takes a slot of each state group for a copy of the state after all of these keys, and makes it findable.
    /// Groups that have one, or have no slot left, are left out. The slots are kept until [`Self::give_back`].
    pub(crate) fn checkpoint(&mut self, keys: &[BlockKey]) -> Vec<(usize, BlockId)> {
        let Some(key) = keys.last() else { return Vec::new() };
        let mut taken = Vec::new();
        for (group, (kind, pool)) in self.groups.iter_mut().enumerate() {
            if *kind == GroupKind::State && pool.find(key).is_none() && pool.available() > 0 {
                let slot = pool.take();
                pool.seal(slot, *key);
                taken.push((group, slot));
            }
        }
        taken
    }

    /// Lets go of a block that was lent or taken.
    pub(crate) fn give_back(&mut self, group: usize, block: BlockId) {
        self.groups[group].1.release(block);
    }

    /// What taking up after all of these keys needs: for each group, the keys it reads.
    fn needed<'k>(
        &self,
        keys: &'k [BlockKey],
    ) -> impl Iterator<Item = (usize, &'k [BlockKey])> + use<'_, 'k> {
        self.groups()
            .enumerate()
            .map(move |(group, (kind, _))| (group, &keys[kind.first_needed(self.block_size, keys.len())..]))
    }

    /// Of what taking up after all of these keys needs, what is not here: each with its group.
    pub(crate) fn missing(&self, keys: &[BlockKey]) -> Vec<(usize, BlockKey)> {
        let missing = self.needed(keys).flat_map(|(group, keys)| {
            let pool = &self.groups[group].1;
            keys.iter().filter(|key| pool.find(key).is_none()).map(move |key| (group, *key))
        });
        missing.collect()
    }

    /// True when what is missing for taking up after all of these keys fits beside what is there.
    pub(crate) fn has_room_for(&self, keys: &[BlockKey]) -> bool {
        self.needed(keys).all(|(group, keys)| {
            let pool = &self.groups[group].1;
            let lacking = |key: &&BlockKey| pool.find(key).is_none_or(|block| pool.holders(block) == 0);
            keys.iter().filter(lacking).count() <= pool.available()
        })
    }

    /// Takes blocks for what is missing for taking up after all of these keys, and makes them findable though nobody
    /// holds them. Their content is still to be written.
    pub(crate) fn restore(&mut self, keys: &[BlockKey]) -> Vec<KeyedBlock> {
        let missing = self.missing(keys);
        let mut kept: Vec<(usize, BlockId)> = self.adoptable(keys).collect();
        for &(group, block) in &kept {
            self.groups[group].1.share(block);
        }
        let mut restored = Vec::new();
        for (group, key) in missing {
            let pool = &mut self.groups[group].1;
            let block = pool.take();
            pool.seal_restored(block, key);
            restored.push(KeyedBlock { group, block, key: key.0 });
            kept.push((group, block));
        }
        kept.into_iter().rev().for_each(|(group, block)| self.groups[group].1.release(block));
        restored
    }

    /// What became findable since this was last asked and still is.
    pub(crate) fn drain_fresh(&mut self) -> Vec<KeyedBlock> {
        let groups = self.groups.iter_mut().enumerate();
        let fresh = groups.flat_map(|(group, (_, pool))| {
            pool.drain_fresh().map(move |(block, key)| KeyedBlock { group, block, key: key.0 })
        });
        fresh.collect()
    }

    /// Takes the blocks that positions up to `end` lack. Never moves one that is held.
    pub(crate) fn grow(&mut self, holdings: &mut [Holding], start: usize, end: usize) {
        for (holding, (kind, pool)) in holdings.iter_mut().zip(&mut self.groups) {
            let reach = kind.last_block(self.block_size, end);
            while holding.end() < reach {
                holding.blocks.push(pool.take());
            }
            if *kind != GroupKind::State {
                let written = start / self.block_size - holding.first..reach - holding.first;
                let private = holding.blocks[written].iter().all(|&block| pool.is_private(block));
                assert!(private, "what others can see is never written");
            }
        }
    }

    /// Makes blocks findable. `blocks`: logical, all of them full.
    pub(crate) fn seal(&mut self, holdings: &[Holding], keys: &[BlockKey], blocks: std::ops::Range<usize>) {
        for (holding, (kind, pool)) in holdings.iter().zip(&mut self.groups) {
            if *kind == GroupKind::State {
                continue;
            }
            let held = blocks.start.max(holding.first)..blocks.end;
            let mine = &holding.blocks[held.start - holding.first..held.end - holding.first];
            mine.iter().zip(&keys[held]).for_each(|(&block, &key)| pool.seal(block, key));
        }
    }

    /// Releases what nothing reads once `next` is the first position still to compute.
    pub(crate) fn slide(&mut self, holdings: &mut [Holding], next: usize) {
        for (holding, (kind, pool)) in holdings.iter_mut().zip(&mut self.groups) {
            let behind = holding.behind(*kind, self.block_size, next);
            holding.blocks.drain(..behind).for_each(|block| pool.release(block));
            holding.first += behind;
        }
    }

    /// Releases everything. The end of a sequence is forgotten before its beginning, which more may share.
    pub(crate) fn release(&mut self, holdings: &mut [Holding]) {
        for (holding, (_, pool)) in holdings.iter_mut().zip(&mut self.groups) {
            holding.blocks.drain(..).rev().for_each(|block| pool.release(block));
            holding.first = 0;
        }
    }

    /// Frees and forgets everything. Nobody may hold anything afterwards.
    pub(crate) fn reset(&mut self) {
        for (_, pool) in &mut self.groups {
            *pool = Pool::new(pool.total() as u32);
        }
    }

    /// How full each group is.
    pub(crate) fn stats(&self) -> Vec<GroupStats> {
        self.groups().map(|(_, pool)| pool.stats()).collect()
    }

    /// Panics if these are not all that is held.
    pub(crate) fn audit<'a>(&self, holdings: impl Iterator<Item = &'a [Holding]>) {
        let mut counts: Vec<Vec<u32>> = self.groups().map(|(_, pool)| vec![0; pool.total()]).collect();
        for held in holdings {
            for (count, holding) in counts.iter_mut().zip(held) {
                holding.blocks.iter().for_each(|block| count[block.0 as usize] += 1);
            }
        }
        self.groups().zip(&counts).for_each(|((_, pool), count)| pool.audit(count));
    }
}
