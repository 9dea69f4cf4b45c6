//! Cache hits of new prompts, and why a prompt, or the rest of it, was not found in the prefix cache.
//!
//! Invariant: it only counts. Nothing is shared through the first blocks that it remembers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::kv_cache::KvCacheManager;
use crate::plan::{CacheMiss, PrefixLookup};
use crate::prefix::BlockHash;
use crate::request::LookupContext;
use crate::sequence::Sequence;
use crate::stats::CacheMisses;

/// Most first blocks that are remembered.
const FIRST_BLOCKS_MAX: usize = 4096;

/// Lookups of prompts in the prefix cache.
#[derive(Debug, Clone, Default)]
pub(super) struct PrefixLookups {
    /// The first blocks of prompts, whatever their salt: the last salt of each.
    salts: BTreeMap<BlockHash, u128>,
    /// First blocks, oldest first.
    order: VecDeque<BlockHash>,
    misses: CacheMisses,
}

impl PrefixLookups {
    /// Misses so far.
    pub(super) fn misses(&self) -> CacheMisses {
        self.misses
    }

    /// The cache hit of a newly admitted sequence, `cached` tokens, and why it is not longer.
    pub(super) fn look_up(
        &mut self,
        context: &LookupContext,
        sequence: &Sequence,
        cached: usize,
        kv_cache: &KvCacheManager,
    ) -> PrefixLookup {
        let block_size = kv_cache.block_size();
        let (found, most) = (cached / block_size, sequence.reusable_tokens().len() / block_size);
        let first = sequence.cache.hashes.first_block_hash(&sequence.tokens);
        let salt = match first.is_some_and(|first| self.insert(first, context.salt)) {
            true => SeenSalt::Another,
            false => SeenSalt::SameOrNone,
        };
        let miss = (kv_cache.shares() && found < most)
            .then(|| miss(kv_cache, context, sequence, (found..most, salt)));
        if let Some(miss) = miss {
            self.misses.count(miss);
        }
        PrefixLookup { sequence: sequence.id(), cached, computed: sequence.tokens.len() - cached, miss }
    }

    /// Inserts a first block. True if it had another salt before.
    fn insert(&mut self, first: BlockHash, salt: u128) -> bool {
        let before = self.salts.insert(first, salt);
        if before.is_none() {
            self.order.push_back(first);
        }
        if self.order.len() > FIRST_BLOCKS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.salts.remove(&oldest);
        }
        before.is_some_and(|before| before != salt)
    }
}

/// Whether a first block was seen under another salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeenSalt {
    Another,
    SameOrNone,
}

/// Why the `missing` blocks of a sequence are not cached.
fn miss(
    kv_cache: &KvCacheManager,
    context: &LookupContext,
    sequence: &Sequence,
    (missing, salt): (Range<usize>, SeenSalt),
) -> CacheMiss {
    let (hashes, found) = (sequence.cache.hashes.all(), missing.start);
    if kv_cache.longest_cache_hit(hashes, missing.end) > found {
        return CacheMiss::Span;
    }
    if kv_cache.longest_hit_without_states(hashes, missing.end) > found {
        return CacheMiss::State;
    }
    if kv_cache.longest_hit_in_full_groups(hashes, missing.end) > found {
        return CacheMiss::Window;
    }
    if kv_cache.was_evicted(&hashes[found]) {
        return CacheMiss::Evicted;
    }
    match kv_cache.divergence(&sequence.cache.hashes, &sequence.tokens, found) {
        Some(position) if context.history.contains(&position) => CacheMiss::HistoryChanged { position },
        _ if salt == SeenSalt::Another && found == 0 => CacheMiss::Salt,
        _ => CacheMiss::Cold,
    }
}
