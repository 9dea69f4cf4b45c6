//! Why a prompt, or the rest of it, was not found in the prefix cache.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::Scheduler;
use crate::prefix::BlockHash;
use crate::request::LookupContext;
use crate::sequence::Sequence;
use crate::{CacheMiss, PrefixLookup};

/// Most first blocks that are remembered.
const BEGINNINGS_MAX: usize = 4096;

/// The first blocks of prompts, whatever their salt. It only counts: nothing is shared through it.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstBlocks {
    /// The last salt of each.
    salts: BTreeMap<BlockHash, u128>,
    /// Oldest first.
    order: VecDeque<BlockHash>,
}

impl FirstBlocks {
    /// Inserts a first block. True if it had another salt before.
    fn insert(&mut self, beginning: BlockHash, salt: u128) -> bool {
        let before = self.salts.insert(beginning, salt);
        if before.is_none() {
            self.order.push_back(beginning);
        }
        if self.order.len() > BEGINNINGS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.salts.remove(&oldest);
        }
        before.is_some_and(|before| before != salt)
    }
}

impl Scheduler {
    /// The cache hit of a newly admitted sequence, `cached` tokens, and why it is not longer.
    pub(super) fn look_up(
        &mut self,
        asked: &LookupContext,
        id: crate::SequenceId,
        cached: usize,
    ) -> Option<PrefixLookup> {
        let sequence = self.sequences.get(&id)?;
        let block_size = self.settings.block_size;
        let (found, most) = (cached / block_size, (sequence.tokens.len() - 1) / block_size);
        let beginning = sequence.cache.hashes.first_block_hash(&sequence.tokens);
        let salted = beginning.is_some_and(|beginning| self.first_blocks.insert(beginning, asked.salt));
        let sequence = self.sequences.get(&id)?;
        let shares = self.kv_cache.shares();
        let miss = (shares && found < most).then(|| self.why(asked, sequence, found..most, salted));
        if let Some(miss) = miss {
            self.totals.misses.count(miss);
        }
        Some(PrefixLookup { sequence: id, cached, computed: sequence.tokens.len() - cached, miss })
    }

    /// `blocks`: the missing ones.
    fn why(
        &self,
        asked: &LookupContext,
        sequence: &Sequence,
        blocks: Range<usize>,
        salted: bool,
    ) -> CacheMiss {
        let keys = sequence.cache.hashes.all();
        let (kv_cache, found) = (&self.kv_cache, blocks.start);
        if kv_cache.longest_hit_without_states(keys, blocks.end) > found {
            return CacheMiss::State;
        }
        if kv_cache.longest_hit_in_full_groups(keys, blocks.end) > found {
            return CacheMiss::Window;
        }
        if kv_cache.was_evicted(&keys[found]) {
            return CacheMiss::Evicted;
        }
        match kv_cache.divergence(&sequence.cache.hashes, &sequence.tokens, found) {
            Some(position) if asked.history.contains(&position) => CacheMiss::HistoryChanged { position },
            _ if salted && found == 0 => CacheMiss::Salt,
            _ => CacheMiss::Cold,
        }
    }
}
