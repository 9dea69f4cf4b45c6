//! The KV cache of all layer groups: cache hits, allocation and release for one sequence at a time.
//!
//! [`block_pool`](crate::block_pool) owns the blocks of one group, [`group`] adds what its kind means for a sequence,
//! [`coordinator`] has all groups, and [`content`] what cached blocks contain. The manager joins them: what is evicted
//! from a pool leaves the content index, too.

mod content;
mod coordinator;
mod events;
mod group;

use std::ops::Range;

use omnibus_kv::{BlockId, BlockTable, CacheKind};

use crate::block_pool::BlockPool;
use crate::plan::CachedBlock;
use crate::prefix::{BlockHash, BlockHashes};
use crate::request::Token;
use crate::sequence::SequenceCache;
use crate::settings::Settings;
use crate::stats::GroupStats;
use content::ContentIndex;
use coordinator::Coordinator;
pub(crate) use coordinator::PreemptionLoss;
use events::EventLog;
pub use events::{CacheEvent, StoredBlock};
use group::GroupCache;

/// The KV cache of all layer groups.
#[derive(Debug, Clone)]
pub(crate) struct KvCacheManager {
    coordinator: Coordinator,
    content: ContentIndex,
    /// The group whose blocks `content` describes: the first with a block for every position.
    tracked_group: Option<usize>,
    /// Whether blocks are shared between sequences.
    shares: bool,
}

/// A block that a session pins: its group, its id, and the epoch of its content.
pub(crate) type Pin = (usize, BlockId, u64);

/// A partial cache hit: the beginning of a block that can be copied instead of computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartialBlock {
    /// Hash of the whole block.
    pub(crate) hash: BlockHash,
    /// Tokens that match. Never zero.
    pub(crate) tokens: usize,
}

impl KvCacheManager {
    /// Everything free.
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut kv_cache = Self {
            coordinator: Coordinator::new(settings),
            shares: settings.shares(),
            tracked_group: settings.groups.iter().position(|group| {
                matches!(group.kind(), CacheKind::Full | CacheKind::Latent | CacheKind::SlidingWindow { .. })
            }),
            content: ContentIndex::new(0, EventLog::new(settings.cache_events, settings.block_size)),
        };
        kv_cache.reset();
        kv_cache
    }

    /// The kind and pool of each group.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (CacheKind, &BlockPool)> {
        self.coordinator.groups().iter().map(|group| (group.kind, &group.pool))
    }

    /// References to a block.
    pub(crate) fn ref_count(&self, group: usize, block: BlockId) -> u32 {
        self.coordinator.groups().get(group).map_or(0, |group| group.pool.ref_count(block))
    }

    /// The block of a hash in a group.
    pub(crate) fn find(&self, group: usize, hash: BlockHash) -> Option<BlockId> {
        self.coordinator.groups().get(group).and_then(|group| group.pool.find(&hash))
    }

    /// True for a group of states.
    pub(crate) fn is_state(&self, group: usize) -> bool {
        self.coordinator.groups().get(group).is_some_and(|group| group.kind.is_state())
    }

    /// Tokens per block.
    pub(crate) fn block_size(&self) -> usize {
        self.coordinator.block_size()
    }

    /// True when blocks are shared between sequences.
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    /// The longest sequence that can run alone.
    pub(crate) fn max_sequence_tokens(&self) -> usize {
        self.coordinator.max_sequence_tokens()
    }

    /// The most tokens from `start` on that one step can compute of a sequence that runs alone.
    pub(crate) fn max_span_tokens(&self, start: usize) -> usize {
        let block_size = self.block_size();
        let end = |(kind, pool): (CacheKind, &BlockPool)| {
            kind.tokens_in(block_size, kind.out_of_window_blocks(block_size, start) + pool.total())
        };
        self.groups().map(end).min().unwrap_or(0).saturating_sub(start)
    }

    /// The block tables of a sequence before it is admitted: empty, in each group.
    pub(crate) fn empty_tables(&self) -> Vec<BlockTable> {
        self.coordinator.empty_tables()
    }

    /// The longest cache hit of these hashes, in blocks, at most `most`.
    pub(crate) fn longest_cache_hit(&self, hashes: &[BlockHash], most: usize) -> usize {
        self.longest_cache_hit_with(&hashes[..most.min(hashes.len())], |_, _| false)
    }

    /// The longest cache hit of these hashes, in blocks, at most `most`, if every state had a checkpoint.
    pub(crate) fn longest_hit_without_states(&self, hashes: &[BlockHash], most: usize) -> usize {
        self.longest_cache_hit_with(&hashes[..most.min(hashes.len())], |group, _| self.is_state(group))
    }

    /// The longest cache hit of these hashes, in blocks, if only blocks of full groups were needed. Zero without a full
    /// group.
    pub(crate) fn longest_hit_in_full_groups(&self, hashes: &[BlockHash], most: usize) -> usize {
        let groups = self.coordinator.groups();
        if !groups.iter().any(|group| group.kind.is_full()) {
            return 0;
        }
        let is_other = |group: usize, _| !groups[group].kind.is_full();
        self.longest_cache_hit_with(&hashes[..most.min(hashes.len())], is_other)
    }

    /// The longest cache hit of a sequence's first `most` blocks that it can use, in blocks: none ends inside a span.
    pub(crate) fn longest_usable_hit(&self, cache: &SequenceCache, most: usize) -> usize {
        self.longest_usable_hit_with(cache, most, |_, _| false)
    }

    /// The longest usable cache hit of a sequence, in blocks, if the blocks that `elsewhere` has (by group and hash)
    /// were also cached.
    pub(crate) fn longest_usable_hit_with(
        &self,
        cache: &SequenceCache,
        most: usize,
        elsewhere: impl Fn(usize, BlockHash) -> bool,
    ) -> usize {
        let mut longest = 0;
        self.visit_usable_hits(cache, most, elsewhere, |blocks| longest = blocks);
        longest
    }

    /// All lengths of usable cache hits of a sequence, in blocks, ascending.
    pub(crate) fn usable_hits_with(
        &self,
        cache: &SequenceCache,
        most: usize,
        elsewhere: impl Fn(usize, BlockHash) -> bool,
    ) -> Vec<usize> {
        let mut lengths = Vec::new();
        self.visit_usable_hits(cache, most, elsewhere, |blocks| lengths.push(blocks));
        lengths
    }

    fn visit_usable_hits(
        &self,
        cache: &SequenceCache,
        most: usize,
        elsewhere: impl Fn(usize, BlockHash) -> bool,
        mut visit: impl FnMut(usize),
    ) {
        let hashes = cache.hashes.all();
        if self.shares {
            self.coordinator.find_cache_hits(&hashes[..most.min(hashes.len())], elsewhere, |blocks| {
                if cache.spans.is_boundary(blocks * self.block_size()) {
                    visit(blocks);
                }
            });
        }
    }

    /// The longest cache hit of these hashes, in blocks, if the blocks that `elsewhere` has (by group and hash) were
    /// cached, too.
    fn longest_cache_hit_with(
        &self,
        hashes: &[BlockHash],
        elsewhere: impl Fn(usize, BlockHash) -> bool,
    ) -> usize {
        if !self.shares {
            return 0;
        }
        self.coordinator.find_cache_hits(hashes, elsewhere, |_| {})
    }

    /// True if a block with this content was evicted recently.
    pub(crate) fn was_evicted(&self, hash: &BlockHash) -> bool {
        self.content.was_evicted(hash)
    }

    /// After a hit of `found` blocks: the first position at which the most similar cached sequence differs. None if no
    /// cached block follows the hit.
    pub(crate) fn divergence(&self, hashes: &BlockHashes, tokens: &[Token], found: usize) -> Option<usize> {
        let content = hashes.content(found, tokens);
        let (_, common) = self.content.longest_partial_match(&hashes.parent(found), &content, |_| true)?;
        Some(found * self.block_size() + common)
    }

    /// The blocks that a hit of all these hashes uses which ends at `start`, after them or in the next block; each with
    /// its group.
    pub(crate) fn prefix_blocks(
        &self,
        hashes: &[BlockHash],
        start: usize,
    ) -> impl Iterator<Item = (usize, BlockId)> {
        self.coordinator.required_blocks(hashes, start)
    }

    /// True when the beginning of a block can be copied, which is impossible for a state.
    pub(crate) fn supports_partial_hits(&self) -> bool {
        self.shares && self.groups().all(|(kind, _)| kind != CacheKind::State)
    }

    /// After a hit of `found` blocks, the partial hit in the next one, if copying it is worth it. It has no more than these
    /// tokens, and it does not end inside a span.
    pub(crate) fn longest_partial_hit(
        &self,
        cache: &SequenceCache,
        tokens: &[Token],
        found: usize,
    ) -> Option<PartialBlock> {
        if !self.supports_partial_hits() {
            return None;
        }
        let SequenceCache { hashes, spans, .. } = cache;
        let content = hashes.content(found, tokens);
        let is_whole = |hash: &BlockHash| {
            let mut groups = self.coordinator.groups().iter().filter(|group| group.has_block(found));
            groups.all(|group| group.pool.find(hash).is_some())
        };
        let (hash, tokens) = self.content.longest_partial_match(&hashes.parent(found), &content, is_whole)?;
        let start = found * self.block_size();
        let tokens = spans.floor(start + tokens).saturating_sub(start);
        (tokens >= self.min_partial_tokens()).then_some(PartialBlock { hash, tokens })
    }

    /// The least tokens of a partial hit that are worth a copy.
    fn min_partial_tokens(&self) -> usize {
        (self.block_size() / 4).max(1)
    }

    /// The blocks with this content, each with its group.
    pub(crate) fn with_hash(&self, hash: BlockHash) -> impl Iterator<Item = (usize, BlockId)> {
        self.coordinator.with_hash(hash)
    }

    /// Adds references to the blocks with this content, until [`Self::release_block`] of each.
    pub(crate) fn acquire(&mut self, hash: BlockHash) -> Vec<(usize, BlockId)> {
        let acquired: Vec<_> = self.with_hash(hash).collect();
        acquired.iter().for_each(|&(group, block)| self.pool_mut(group).incref(block));
        acquired
    }

    /// Attaches the blocks of these hashes to a new sequence whose hit ends at `start`, after them or in the next block.
    /// States are only acquired, each in its group: the sequence copies them, and releases them with
    /// [`Self::release_block`].
    pub(crate) fn attach_prefix(
        &mut self,
        tables: &mut [BlockTable],
        hashes: &[BlockHash],
        start: usize,
    ) -> Vec<(usize, BlockId)> {
        let groups = tables.iter_mut().zip(self.coordinator.groups_mut()).enumerate();
        let acquired = groups.map(|(at, (table, group))| Some((at, group.attach(table, hashes, start)?)));
        acquired.flatten().collect()
    }

    /// Allocates a slot of each state group for a checkpoint after all of these hashes, and caches it. Skips groups that
    /// have one, or have no slot left. The slots are referenced until [`Self::release_block`].
    pub(crate) fn checkpoint(&mut self, hashes: &[BlockHash]) -> Vec<(usize, BlockId)> {
        let Some(hash) = hashes.last() else { return Vec::new() };
        let mut taken = Vec::new();
        for number in 0..self.coordinator.groups().len() {
            let GroupCache { kind, pool, .. } = &self.coordinator.groups()[number];
            if kind.is_state() && pool.find(hash).is_none() && pool.available() > 0 {
                let slot = self.allocate_block(number);
                self.pool_mut(number).cache_block(slot, *hash);
                taken.push((number, slot));
            }
        }
        taken
    }

    /// Releases a block that was acquired or allocated.
    pub(crate) fn release_block(&mut self, group: usize, block: BlockId) {
        self.pool_mut(group).decref(block);
    }

    /// The blocks that a hit of all these hashes needs and that are not cached: each by its group and the hash's index.
    pub(crate) fn missing(&self, hashes: &[BlockHash]) -> Vec<(usize, usize)> {
        self.coordinator.missing(hashes)
    }

    /// True when the missing blocks of a hit of all these hashes fit beside the cached ones.
    pub(crate) fn has_room_for(&self, hashes: &[BlockHash]) -> bool {
        self.coordinator.has_room_for(hashes)
    }

    /// Allocates the missing blocks of a hit of `blocks` blocks, and caches them without references. Their content is
    /// still to be written.
    pub(crate) fn restore(
        &mut self,
        hashes: &BlockHashes,
        tokens: &[Token],
        blocks: usize,
    ) -> Vec<CachedBlock> {
        let cached = &hashes.all()[..blocks];
        let missing = self.missing(cached);
        let mut kept: Vec<(usize, BlockId)> =
            self.prefix_blocks(cached, blocks * self.block_size()).collect();
        for &(group, block) in &kept {
            self.pool_mut(group).incref(block);
        }
        let mut restored = Vec::new();
        for (group, at) in missing {
            let (block, hash) = (self.allocate_block(group), cached[at]);
            self.pool_mut(group).cache_offloaded_block(block, hash);
            if self.tracked_group == Some(group) {
                self.content.cache_block(hashes, at, (hash, hashes.content(at, tokens)));
            }
            restored.push(CachedBlock { group, block, hash: hash.0 });
            kept.push((group, block));
        }
        kept.into_iter().rev().for_each(|(group, block)| self.pool_mut(group).decref(block));
        restored
    }

    /// At most `most` newly cached blocks that still are cached and were not returned before.
    pub(crate) fn take_newly_cached(&mut self, most: usize) -> Vec<CachedBlock> {
        let mut newly_cached = Vec::new();
        for (number, group) in self.coordinator.groups_mut().iter_mut().enumerate() {
            while newly_cached.len() < most
                && let Some((block, hash)) = group.pool.pop_newly_cached()
            {
                newly_cached.push(CachedBlock { group: number, block, hash: hash.0 });
            }
        }
        newly_cached
    }

    /// What was cached and evicted since the last call, oldest first.
    pub(crate) fn take_events(&mut self) -> Vec<CacheEvent> {
        self.content.take_events()
    }

    /// True for a block that was not offered for offloading yet.
    pub(crate) fn is_newly_cached(&self, block: &CachedBlock) -> bool {
        let group = self.coordinator.groups().get(block.group);
        group.is_some_and(|group| group.pool.is_newly_cached(block.block))
    }

    /// These blocks are offloaded.
    pub(crate) fn mark_offloaded(&mut self, blocks: &[CachedBlock]) {
        blocks.iter().for_each(|block| self.pool_mut(block.group).mark_offloaded(block.block));
    }

    /// True while the block is cached in this place.
    pub(crate) fn is_cached_at(&self, block: &CachedBlock) -> bool {
        self.find(block.group, BlockHash(block.hash)) == Some(block.block)
    }

    /// What a sequence may lose by preemption whose cached blocks have these hashes.
    pub(crate) fn preemption_loss(&self, hashes: &[BlockHash]) -> PreemptionLoss {
        self.coordinator.preemption_loss(&hashes[..self.longest_cache_hit(hashes, hashes.len())])
    }

    /// Caches the states of a sequence that is about to be preempted, if all its `computed` positions are in cached
    /// blocks.
    pub(crate) fn cache_states(&mut self, cache: &SequenceCache, computed: usize) {
        let Some(hash) = cache.cached_hashes().last().filter(|_| self.shares) else { return };
        if cache.cached_blocks * self.block_size() != computed {
            return;
        }
        for (table, group) in cache.tables.iter().zip(self.coordinator.groups_mut()) {
            if let (CacheKind::State, Some(slot)) = (group.kind, table.blocks.first()) {
                group.pool.cache_block(*slot, *hash);
            }
        }
    }

    /// Pins the blocks of the longest cache hit of these hashes.
    pub(crate) fn pin(&mut self, hashes: &[BlockHash]) -> Vec<Pin> {
        let hashes = &hashes[..self.longest_cache_hit(hashes, hashes.len())];
        let start = hashes.len() * self.block_size();
        let blocks: Vec<(usize, BlockId)> = self.prefix_blocks(hashes, start).collect();
        let pinned = blocks.into_iter().map(|(group, block)| (group, block, self.pool_mut(group).pin(block)));
        pinned.collect()
    }

    /// Removes pins.
    pub(crate) fn unpin(&mut self, pins: &[Pin]) {
        pins.iter().for_each(|&(group, block, epoch)| self.pool_mut(group).unpin(block, epoch));
    }

    /// True while the pinned content is cached.
    pub(crate) fn is_pinned(&self, &(group, block, epoch): &Pin) -> bool {
        self.coordinator.groups().get(group).is_some_and(|group| group.pool.has(block, epoch))
    }

    /// Allocates the blocks that these positions lack, and a state slot for each sample. Never moves a held block.
    pub(crate) fn allocate(&mut self, tables: &mut [BlockTable], positions: &Range<usize>, samples: usize) {
        let (content, tracked) = (&mut self.content, self.tracked_group);
        for (at, (table, group)) in tables.iter_mut().zip(self.coordinator.groups_mut()).enumerate() {
            group.allocate(table, positions, samples, |hash| {
                if tracked == Some(at) {
                    content.remove(hash);
                }
            });
        }
    }

    /// Caches the full blocks of `tokens`, a sequence's prefix whose positions are computed.
    pub(crate) fn cache_full_blocks(&mut self, cache: &mut SequenceCache, tokens: &[Token]) {
        let blocks = cache.cached_blocks..tokens.len() / self.block_size();
        if !self.shares || blocks.is_empty() {
            return;
        }
        cache.cached_blocks = blocks.end;
        let hashes = &cache.hashes;
        for (number, (table, group)) in cache.tables.iter().zip(self.coordinator.groups_mut()).enumerate() {
            let cached = group.cache_blocks(table, hashes.all(), blocks.clone());
            if self.tracked_group == Some(number) {
                for at in cached {
                    let block = (hashes.all()[at], hashes.content(at, tokens));
                    self.content.cache_block(hashes, at, block);
                }
            }
        }
    }

    /// Caches the last, partial block of a sequence that ends, if it is worth a copy and not cached yet.
    pub(crate) fn cache_tail(&mut self, cache: &mut SequenceCache, tokens: &[Token]) {
        if !self.shares {
            return;
        }
        self.cache_full_blocks(cache, tokens);
        let SequenceCache { tables, hashes, .. } = cache;
        let at = tokens.len() / self.block_size();
        let content = hashes.content(at, tokens);
        if !self.supports_partial_hits() || content.tokens.len() < self.min_partial_tokens() {
            return;
        }
        let hash = hashes.partial_hash(at, &content);
        let is_held =
            tables.iter().zip(self.coordinator.groups()).all(|(table, group)| group.holds(table, at));
        if !is_held || self.with_hash(hash).next().is_some() {
            return;
        }
        for (table, group) in tables.iter().zip(self.coordinator.groups_mut()) {
            if group.has_block(at) {
                group.pool.cache_offloaded_block(table.blocks[at - table.freed_blocks], hash);
            }
        }
        self.content.cache_block(hashes, at, (hash, content));
    }

    /// Releases the blocks after the first `tokens` positions, and all state slots but the one that holds the state after
    /// the last accepted of several samples.
    pub(crate) fn truncate(&mut self, tables: &mut [BlockTable], tokens: usize, accepted: usize) {
        for (table, group) in tables.iter_mut().zip(self.coordinator.groups_mut()) {
            group.truncate(table, tokens, accepted);
        }
    }

    /// Releases blocks out of the window once `next` is the first position still to compute.
    pub(crate) fn free_out_of_window(&mut self, tables: &mut [BlockTable], next: usize) {
        for (table, group) in tables.iter_mut().zip(self.coordinator.groups_mut()) {
            group.free_out_of_window(table, next);
        }
    }

    /// Releases everything.
    pub(crate) fn release(&mut self, tables: &mut [BlockTable]) {
        for (table, group) in tables.iter_mut().zip(self.coordinator.groups_mut()) {
            group.release(table);
        }
    }

    /// Frees and evicts everything. No sequence may hold a block afterwards.
    pub(crate) fn reset(&mut self) {
        self.coordinator.groups_mut().iter_mut().for_each(GroupCache::reset);
        let blocks = self.tracked_group.map(|group| self.coordinator.groups()[group].pool.total());
        self.content.reset(blocks.unwrap_or(0));
    }

    fn allocate_block(&mut self, group: usize) -> BlockId {
        let (block, evicted) = self.pool_mut(group).allocate();
        if let Some(hash) = evicted.filter(|_| self.tracked_group == Some(group)) {
            self.content.remove(hash);
        }
        block
    }

    fn pool_mut(&mut self, group: usize) -> &mut BlockPool {
        &mut self.coordinator.groups_mut()[group].pool
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
        let found = self.tracked_group.map_or(0, |group| self.coordinator.groups()[group].pool.cached());
        assert_eq!(self.content.len(), found, "the content index does not match the cached blocks");
    }
}
