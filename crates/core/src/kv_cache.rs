//! The KV cache of all layer groups: cache hits, allocation and release for one sequence at a time.

mod content;
mod group;
mod preemption_loss;

use std::ops::Range;

use omnibus_kv::{BlockId, BlockTable, CacheKind, RequiredBlocks};

use crate::block_pool::BlockPool;
use crate::prefix::{BlockHash, BlockHashes};
use crate::{CachedBlock, GroupStats, Settings, Token};
use content::ContentIndex;
use group::GroupCache;
pub(crate) use preemption_loss::PreemptionLoss;

/// The pools of all layer groups.
#[derive(Debug, Clone)]
pub(crate) struct KvCacheManager {
    block_size: usize,
    groups: Vec<GroupCache>,
    shares: bool,
    /// The group whose blocks `content` describes: the first with a block for every position.
    tracked_group: Option<usize>,
    content: ContentIndex,
}

/// A block that a session pins: its group, its id, and the epoch of its content.
pub(crate) type Pin = (usize, BlockId, u64);

/// A partial cache hit: the beginning of a block that can be copied instead of computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartialBlock {
    /// Hash of the whole block.
    pub(crate) key: BlockHash,
    /// Tokens that match. Never zero.
    pub(crate) tokens: usize,
}

impl KvCacheManager {
    /// Everything free.
    pub(crate) fn new(settings: &Settings) -> Self {
        let groups = settings.groups.iter();
        let groups = groups.map(|group| GroupCache::new(group.kind(), settings.block_size, group.blocks));
        let mut kv_cache = Self {
            block_size: settings.block_size,
            groups: groups.collect(),
            shares: settings.shares(),
            tracked_group: settings.groups.iter().position(|group| {
                matches!(group.kind(), CacheKind::Full | CacheKind::Latent | CacheKind::SlidingWindow { .. })
            }),
            content: ContentIndex::new(0),
        };
        kv_cache.reset();
        kv_cache
    }

    /// The kind and pool of each group.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (CacheKind, &BlockPool)> {
        self.groups.iter().map(|group| (group.kind, &group.pool))
    }

    /// True for a group of states.
    pub(crate) fn is_state(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|group| group.kind.is_state())
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
        let each = self.groups().map(|(kind, pool)| kind.max_sequence_tokens(self.block_size, pool.total()));
        each.min().unwrap_or(0)
    }

    /// The block tables of a sequence before it is admitted: empty, in each group.
    pub(crate) fn empty_tables(&self) -> Vec<BlockTable> {
        self.groups().map(|(kind, _)| BlockTable::new(kind, self.block_size)).collect()
    }

    /// The longest cache hit of these hashes, in blocks, at most `most`.
    ///
    /// A hit needs every block before its end in a full group, those inside the window in a window group, and the
    /// checkpoint at its end in a state group.
    pub(crate) fn longest_cache_hit(&self, keys: &[BlockHash], most: usize) -> usize {
        self.cache_hit_lengths(keys, most, |_, _| false, |_| {}).unwrap_or(0)
    }

    /// The same, if every state had a checkpoint.
    pub(crate) fn longest_hit_without_states(&self, keys: &[BlockHash], most: usize) -> usize {
        self.cache_hit_lengths(keys, most, |group, _| self.is_state(group), |_| {}).unwrap_or(0)
    }

    /// The same, if nothing but blocks of full groups were needed. Zero without a full group.
    pub(crate) fn longest_hit_in_full_groups(&self, keys: &[BlockHash], most: usize) -> usize {
        let is_full = |group: usize| self.groups[group].kind.is_full();
        if !(0..self.groups.len()).any(is_full) {
            return 0;
        }
        self.cache_hit_lengths(keys, most, |group, _| !is_full(group), |_| {}).unwrap_or(0)
    }

    /// True if a block with this content was evicted recently.
    pub(crate) fn was_evicted(&self, key: &BlockHash) -> bool {
        self.content.was_evicted(key)
    }

    /// After a hit of `found` blocks: the first position at which the most similar cached sequence differs. None if no
    /// cached block follows the hit.
    pub(crate) fn divergence(&self, hashes: &BlockHashes, tokens: &[Token], found: usize) -> Option<usize> {
        let (_, common) = self.content.longest_partial_match(
            &hashes.parent(found),
            &hashes.content(found, tokens),
            |_| true,
        )?;
        Some(found * self.block_size + common)
    }

    /// Possible hit lengths in blocks, at most `most`, if the blocks that `elsewhere` has (by group and hash) were cached,
    /// too. Calls `visit` with each, ascending, and returns the last.
    pub(crate) fn cache_hit_lengths(
        &self,
        keys: &[BlockHash],
        most: usize,
        elsewhere: impl Fn(usize, BlockHash) -> bool,
        mut visit: impl FnMut(usize),
    ) -> Option<usize> {
        if !self.shares {
            return None;
        }
        let mut best = None;
        let mut runs = vec![0; self.groups.len()];
        // Whether the required blocks of a window are cached.
        let mut sinks_cached = vec![true; self.groups.len()];
        for (at, key) in keys.iter().take(most).enumerate() {
            let blocks = at + 1;
            let mut usable = true;
            for (group, (run, (kind, pool))) in runs.iter_mut().zip(self.groups()).enumerate() {
                *run = if pool.find(key).is_some() || elsewhere(group, *key) { *run + 1 } else { 0 };
                if kind.is_full() && *run < blocks {
                    return best;
                }
                sinks_cached[group] &= *run == blocks || at >= kind.sink_blocks(self.block_size);
                usable &= sinks_cached[group]
                    && *run >= blocks - kind.first_required_block(self.block_size, blocks);
            }
            if usable {
                visit(blocks);
                best = Some(blocks);
            }
        }
        best
    }

    /// The blocks that a hit of all these hashes uses, each with its group.
    pub(crate) fn prefix_blocks(&self, keys: &[BlockHash]) -> impl Iterator<Item = (usize, BlockId)> {
        self.prefix_blocks_at(keys, keys.len() * self.block_size)
    }

    /// The same for a hit that ends at a position `start` in the next block.
    pub(crate) fn prefix_blocks_at(
        &self,
        keys: &[BlockHash],
        start: usize,
    ) -> impl Iterator<Item = (usize, BlockId)> {
        self.needed(keys, start).flat_map(move |(group, range)| {
            let pool = &self.groups[group].pool;
            range.filter_map(move |at| Some((group, pool.find(&keys[at])?)))
        })
    }

    /// True when the beginning of a block can be copied, which is impossible for a state.
    pub(crate) fn supports_partial_hits(&self) -> bool {
        self.shares && self.groups().all(|(kind, _)| kind != CacheKind::State)
    }

    /// After a hit of `found` blocks, the partial hit in the next one, if copying it is worth it. At least one token of
    /// `tokens` is left to compute.
    pub(crate) fn longest_partial_hit(
        &self,
        hashes: &BlockHashes,
        tokens: &[Token],
        found: usize,
    ) -> Option<PartialBlock> {
        if !self.supports_partial_hits() {
            return None;
        }
        let content = hashes.content(found, &tokens[..tokens.len() - 1]);
        let whole = |key: &BlockHash| {
            let mut groups = self.groups().filter(|(kind, _)| kind.has_block(self.block_size, found));
            groups.all(|(_, pool)| pool.find(key).is_some())
        };
        let (key, tokens) = self.content.longest_partial_match(&hashes.parent(found), &content, whole)?;
        (tokens >= self.min_partial_tokens()).then_some(PartialBlock { key, tokens })
    }

    /// The least tokens of a partial hit that are worth a copy.
    fn min_partial_tokens(&self) -> usize {
        (self.block_size / 4).max(1)
    }

    /// The blocks with this content, each with its group.
    pub(crate) fn with_hash(&self, key: BlockHash) -> impl Iterator<Item = (usize, BlockId)> {
        self.groups().enumerate().filter_map(move |(group, (_, pool))| Some((group, pool.find(&key)?)))
    }

    /// Adds references to the blocks with this content, until [`Self::release_block`] of each.
    pub(crate) fn acquire(&mut self, key: BlockHash) -> Vec<(usize, BlockId)> {
        let acquired: Vec<_> = self.with_hash(key).collect();
        acquired.iter().for_each(|&(group, block)| self.groups[group].pool.incref(block));
        acquired
    }

    /// Attaches the blocks of these hashes to a new sequence whose hit ends at `start`, after them or in the next block.
    /// States are only acquired, each in its group: the sequence copies them, and releases them with
    /// [`Self::release_block`].
    pub(crate) fn attach_prefix(
        &mut self,
        tables: &mut [BlockTable],
        keys: &[BlockHash],
        start: usize,
    ) -> Vec<(usize, BlockId)> {
        let groups = tables.iter_mut().zip(&mut self.groups).enumerate();
        let acquired = groups.map(|(at, (table, group))| Some((at, group.attach(table, keys, start)?)));
        acquired.flatten().collect()
    }

    /// Allocates a slot of each state group for a checkpoint after all of these hashes, and caches it. Skips groups that
    /// have one, or have no slot left. The slots are referenced until [`Self::release_block`].
    pub(crate) fn checkpoint(&mut self, keys: &[BlockHash]) -> Vec<(usize, BlockId)> {
        let Some(key) = keys.last() else { return Vec::new() };
        let mut taken = Vec::new();
        for group in 0..self.groups.len() {
            let pool = &self.groups[group].pool;
            if self.is_state(group) && pool.find(key).is_none() && pool.available() > 0 {
                let slot = self.allocate_block(group);
                self.groups[group].pool.cache_block(slot, *key);
                taken.push((group, slot));
            }
        }
        taken
    }

    /// Releases a block that was acquired or allocated.
    pub(crate) fn release_block(&mut self, group: usize, block: BlockId) {
        self.groups[group].pool.decref(block);
    }

    /// The blocks that a hit of all these hashes, ending at `start`, needs in each group.
    fn needed(
        &self,
        keys: &[BlockHash],
        start: usize,
    ) -> impl Iterator<Item = (usize, RequiredBlocks)> + use<'_> {
        let blocks = keys.len();
        self.groups.iter().map(move |group| group.required(blocks, start)).enumerate()
    }

    /// The blocks that a hit of all these hashes needs and that are not cached: each by its group and the hash's index.
    pub(crate) fn missing(&self, keys: &[BlockHash]) -> Vec<(usize, usize)> {
        let missing = self.needed(keys, keys.len() * self.block_size).flat_map(|(group, range)| {
            let pool = &self.groups[group].pool;
            range.filter(|at| pool.find(&keys[*at]).is_none()).map(move |at| (group, at))
        });
        missing.collect()
    }

    /// True when the missing blocks of a hit of all these hashes fit beside the cached ones.
    pub(crate) fn has_room_for(&self, keys: &[BlockHash]) -> bool {
        self.needed(keys, keys.len() * self.block_size).all(|(group, range)| {
            let pool = &self.groups[group].pool;
            let lacking = |key: &&BlockHash| pool.find(key).is_none_or(|block| pool.ref_count(block) == 0);
            range.map(|at| &keys[at]).filter(lacking).count() <= pool.available()
        })
    }

    /// Allocates the missing blocks of a hit of `blocks` blocks, and caches them without references. Their content is
    /// still to be written.
    pub(crate) fn restore(
        &mut self,
        hashes: &BlockHashes,
        tokens: &[Token],
        blocks: usize,
    ) -> Vec<CachedBlock> {
        let keys = &hashes.all()[..blocks];
        let missing = self.missing(keys);
        let mut kept: Vec<(usize, BlockId)> = self.prefix_blocks(keys).collect();
        for &(group, block) in &kept {
            self.groups[group].pool.incref(block);
        }
        let mut restored = Vec::new();
        for (group, at) in missing {
            let (block, key) = (self.allocate_block(group), keys[at]);
            self.groups[group].pool.cache_offloaded_block(block, key);
            if self.tracked_group == Some(group) {
                self.content.insert(hashes.parent(at), key, hashes.content(at, tokens));
            }
            restored.push(CachedBlock { group, block, hash: key.0 });
            kept.push((group, block));
        }
        kept.into_iter().rev().for_each(|(group, block)| self.groups[group].pool.decref(block));
        restored
    }

    /// At most `most` newly cached blocks that still are cached and were not returned before.
    pub(crate) fn take_newly_cached(&mut self, most: usize) -> Vec<CachedBlock> {
        let mut newly_cached = Vec::new();
        for (group, GroupCache { pool, .. }) in self.groups.iter_mut().enumerate() {
            while newly_cached.len() < most
                && let Some((block, key)) = pool.pop_newly_cached()
            {
                newly_cached.push(CachedBlock { group, block, hash: key.0 });
            }
        }
        newly_cached
    }

    /// Pins the blocks of the longest cache hit of these hashes.
    pub(crate) fn pin(&mut self, keys: &[BlockHash]) -> Vec<Pin> {
        let keys = &keys[..self.longest_cache_hit(keys, keys.len())];
        let blocks: Vec<(usize, BlockId)> = self.prefix_blocks(keys).collect();
        blocks.into_iter().map(|(group, block)| (group, block, self.groups[group].pool.pin(block))).collect()
    }

    /// Removes pins.
    pub(crate) fn unpin(&mut self, pins: &[Pin]) {
        pins.iter().for_each(|&(group, block, seal)| self.groups[group].pool.unpin(block, seal));
    }

    /// True while the pinned content is cached.
    pub(crate) fn is_pinned(&self, &(group, block, seal): &Pin) -> bool {
        self.groups.get(group).is_some_and(|group| group.pool.has(block, seal))
    }

    /// Allocates the blocks that these positions lack, and a state slot for each sample. Never moves a held block.
    pub(crate) fn allocate(&mut self, tables: &mut [BlockTable], positions: &Range<usize>, samples: usize) {
        let (content, tracked) = (&mut self.content, self.tracked_group);
        for (at, (table, group)) in tables.iter_mut().zip(&mut self.groups).enumerate() {
            group.allocate(table, positions, samples, |hash| {
                if tracked == Some(at) {
                    content.remove(hash);
                }
            });
        }
    }

    /// Caches blocks. `blocks`: logical, all of them full.
    pub(crate) fn cache_block(
        &mut self,
        tables: &[BlockTable],
        hashes: &BlockHashes,
        tokens: &[Token],
        blocks: Range<usize>,
    ) {
        for (at, (table, group)) in tables.iter().zip(&mut self.groups).enumerate() {
            let cached = group.cache_blocks(table, hashes.all(), blocks.clone());
            if self.tracked_group == Some(at) {
                for at in cached {
                    self.content.insert(hashes.parent(at), hashes.all()[at], hashes.content(at, tokens));
                }
            }
        }
    }

    /// Caches the last, partial block of `tokens`, if it is worth a copy and not cached yet.
    pub(crate) fn cache_partial_block(
        &mut self,
        tables: &[BlockTable],
        hashes: &BlockHashes,
        tokens: &[Token],
    ) {
        let at = tokens.len() / self.block_size;
        let content = hashes.content(at, tokens);
        let key = hashes.partial_hash(at, &content);
        let held = tables.iter().zip(&self.groups).all(|(table, group)| group.holds(table, at));
        let known = self.with_hash(key).next().is_some();
        if !self.supports_partial_hits() || content.tokens.len() < self.min_partial_tokens() || !held || known
        {
            return;
        }
        for (table, group) in tables.iter().zip(&mut self.groups) {
            if group.has_block(at) {
                group.pool.cache_offloaded_block(table.blocks[at - table.freed_blocks], key);
            }
        }
        self.content.insert(hashes.parent(at), key, content);
    }

    /// Releases the blocks behind the first `tokens` positions, and all state slots but the one that holds the state after
    /// the last accepted of several samples.
    pub(crate) fn truncate(&mut self, tables: &mut [BlockTable], tokens: usize, accepted: usize) {
        for (table, group) in tables.iter_mut().zip(&mut self.groups) {
            group.truncate(table, tokens, accepted);
        }
    }

    /// Releases blocks out of the window once `next` is the first position still to compute.
    pub(crate) fn free_out_of_window(&mut self, tables: &mut [BlockTable], next: usize) {
        for (table, group) in tables.iter_mut().zip(&mut self.groups) {
            group.free_out_of_window(table, next);
        }
    }

    /// Releases everything.
    pub(crate) fn release(&mut self, tables: &mut [BlockTable]) {
        for (table, group) in tables.iter_mut().zip(&mut self.groups) {
            group.release(table);
        }
    }

    /// Frees and evicts everything. No sequence may hold a block afterwards.
    pub(crate) fn reset(&mut self) {
        self.groups.iter_mut().for_each(GroupCache::reset);
        let tracked_group = self.tracked_group.map(|tracked_group| self.groups[tracked_group].pool.total());
        self.content = ContentIndex::new(tracked_group.unwrap_or(0));
    }

    fn allocate_block(&mut self, group: usize) -> BlockId {
        let (block, evicted) = self.groups[group].pool.allocate();
        if let Some(key) = evicted.filter(|_| self.tracked_group == Some(group)) {
            self.content.remove(key);
        }
        block
    }

    /// Statistics of each group.
    pub(crate) fn stats(&self) -> Vec<GroupStats> {
        self.groups().map(|(_, pool)| pool.stats()).collect()
    }

    /// Panics if these are not all references and pins.
    pub(crate) fn audit<'a>(
        &self,
        tables: impl Iterator<Item = &'a [BlockTable]>,
        pins: impl Iterator<Item = &'a Pin>,
    ) {
        let mut counts: Vec<Vec<u32>> = self.groups().map(|(_, pool)| vec![0; pool.total()]).collect();
        let mut pinned = counts.clone();
        for pin in pins.filter(|pin| self.is_pinned(pin)) {
            pinned[pin.0][pin.1.0 as usize] += 1;
        }
        for held in tables {
            for (count, table) in counts.iter_mut().zip(held) {
                table.blocks.iter().for_each(|block| count[block.0 as usize] += 1);
            }
        }
        let counts = counts.iter().zip(&pinned);
        self.groups().zip(counts).for_each(|((_, pool), (count, pinned))| pool.audit(count, pinned));
        let found = self.tracked_group.map_or(0, |tracked_group| self.groups[tracked_group].pool.cached());
        assert_eq!(self.content.len(), found, "the content index does not match the cached blocks");
    }
}
