//! The caches of all layer groups, and what depends on all of them: how long a cache hit is, and which blocks it needs.
//!
//! Invariant: knows no tokens and no content, only hashes and blocks.

use std::ops::Range;

use omnibus_kv::{BlockId, BlockTable, CacheKind, RequiredBlocks};
use smallvec::{SmallVec, smallvec};

use super::group::{GroupCache, HitRun, HitState};
use crate::plan::CachedBlock;
use crate::prefix::BlockHash;
use crate::settings::Settings;

/// The caches of all layer groups, in the order of the settings.
#[derive(Debug, Clone)]
pub(super) struct Coordinator {
    block_size: usize,
    groups: Vec<GroupCache>,
}

/// What a sequence may lose by preemption.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreemptionLoss {
    /// Positions that would have to be computed again.
    pub(crate) positions: Range<usize>,
    /// The blocks that a cache hit of these positions needs and that only this sequence holds.
    pub(crate) blocks: Vec<CachedBlock>,
}

impl Coordinator {
    /// Everything free.
    pub(super) fn new(settings: &Settings) -> Self {
        let groups = settings.groups.iter();
        let groups = groups.map(|group| GroupCache::new(group.kind(), settings.block_size, group.blocks));
        Self { block_size: settings.block_size, groups: groups.collect() }
    }

    /// Tokens per block.
    pub(super) fn block_size(&self) -> usize {
        self.block_size
    }

    /// Each group.
    pub(super) fn groups(&self) -> &[GroupCache] {
        &self.groups
    }

    /// Each group, to change it.
    pub(super) fn groups_mut(&mut self) -> &mut [GroupCache] {
        &mut self.groups
    }

    /// The longest sequence that can run alone.
    pub(super) fn max_sequence_tokens(&self) -> usize {
        self.groups.iter().map(GroupCache::max_sequence_tokens).min().unwrap_or(0)
    }

    /// The block tables of a sequence before it is admitted: empty, in each group.
    pub(super) fn empty_tables(&self) -> Vec<BlockTable> {
        self.groups.iter().map(|group| BlockTable::new(group.kind, self.block_size)).collect()
    }

    /// Possible hit lengths of these hashes in blocks, if the blocks that `elsewhere` has (by group and hash) were cached,
    /// too. Calls `visit` with each, ascending, and returns the last, or zero.
    ///
    /// A hit needs every block before its end in a full group, those inside the window in a window group, and the
    /// checkpoint at its end in a state group.
    pub(super) fn find_cache_hits(
        &self,
        hashes: &[BlockHash],
        elsewhere: impl Fn(usize, BlockHash) -> bool,
        mut visit: impl FnMut(usize),
    ) -> usize {
        let mut longest = 0;
        let mut runs: SmallVec<[HitRun; 8]> = smallvec![HitRun::default(); self.groups.len()];
        for (at, hash) in hashes.iter().enumerate() {
            let mut is_usable = true;
            for (number, (group, run)) in self.groups.iter().zip(&mut runs).enumerate() {
                let is_found = group.pool.find(hash).is_some() || elsewhere(number, *hash);
                match group.extend_hit(run, at, is_found) {
                    HitState::Usable => {}
                    HitState::NotHere => is_usable = false,
                    HitState::Over => return longest,
                }
            }
            if is_usable {
                longest = at + 1;
                visit(longest);
            }
        }
        longest
    }

    /// The blocks that a hit of all these hashes, ending at `start`, needs in each group.
    pub(super) fn required(
        &self,
        hashes: &[BlockHash],
        start: usize,
    ) -> impl Iterator<Item = (usize, RequiredBlocks)> + use<'_> {
        let blocks = hashes.len();
        self.groups.iter().map(move |group| group.required(blocks, start)).enumerate()
    }

    /// The cached ones of these, each with its group.
    pub(super) fn required_blocks(
        &self,
        hashes: &[BlockHash],
        start: usize,
    ) -> impl Iterator<Item = (usize, BlockId)> {
        self.required(hashes, start).flat_map(move |(group, range)| {
            let pool = &self.groups[group].pool;
            range.filter_map(move |at| Some((group, pool.find(&hashes[at])?)))
        })
    }

    /// The others, for a hit that ends with the last block: each by its group and the hash's index.
    pub(super) fn missing(&self, hashes: &[BlockHash]) -> Vec<(usize, usize)> {
        let missing = self.required(hashes, hashes.len() * self.block_size).flat_map(|(group, range)| {
            let pool = &self.groups[group].pool;
            range.filter(|at| pool.find(&hashes[*at]).is_none()).map(move |at| (group, at))
        });
        missing.collect()
    }

    /// True when the missing blocks of a hit of all these hashes fit beside the cached ones.
    pub(super) fn has_room_for(&self, hashes: &[BlockHash]) -> bool {
        self.required(hashes, hashes.len() * self.block_size).all(|(group, range)| {
            let pool = &self.groups[group].pool;
            let lacks = |hash: &&BlockHash| pool.find(hash).is_none_or(|block| pool.ref_count(block) == 0);
            range.map(|at| &hashes[at]).filter(lacks).count() <= pool.available()
        })
    }

    /// The blocks with this content, each with its group.
    pub(super) fn with_hash(&self, hash: BlockHash) -> impl Iterator<Item = (usize, BlockId)> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(move |(number, group)| Some((number, group.pool.find(&hash)?)))
    }

    /// What a sequence may lose whose longest cache hit is all of these hashes.
    pub(super) fn preemption_loss(&self, hashes: &[BlockHash]) -> PreemptionLoss {
        let mut loss = PreemptionLoss { positions: 0..0, blocks: Vec::new() };
        // Behind the loss of a state or of a window, everything is lost.
        let mut first = hashes.len();
        for (number, range) in self.required(hashes, hashes.len() * self.block_size) {
            let GroupCache { kind, pool, .. } = &self.groups[number];
            for at in range {
                let Some(block) = pool.find(&hashes[at]).filter(|block| pool.ref_count(*block) <= 1) else {
                    continue;
                };
                loss.blocks.push(CachedBlock { group: number, block, hash: hashes[at].0 });
                let is_prefix = kind.is_full() || matches!(kind, CacheKind::UnquantizedPrefix { .. });
                first = if is_prefix { first.min(at) } else { 0 };
            }
        }
        loss.positions = first * self.block_size..hashes.len() * self.block_size;
        loss
    }
}
