//! What a sequence may lose that gives its memory back.

use std::ops::Range;

use omnibus_kv::{BlockId, BlockTable, CacheKind};

use super::Memory;
use crate::CachedBlock;
use crate::prefix::BlockKey;

/// What a sequence may lose that gives its memory back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stake {
    /// Positions that would have to be computed again.
    pub(crate) positions: Range<usize>,
    /// The blocks that taking up behind them needs, of those that nobody else holds.
    pub(crate) blocks: Vec<CachedBlock>,
}

impl Memory {
    /// What a sequence may lose whose findable blocks have these keys.
    pub(crate) fn stake(&self, keys: &[BlockKey]) -> Stake {
        let keys = &keys[..self.reusable(keys, keys.len())];
        let mut stake = Stake { positions: 0..0, blocks: Vec::new() };
        // Behind the loss of a state or of a window, everything is lost.
        let mut first = keys.len();
        for (group, range) in self.needed(keys, keys.len() * self.block_size) {
            let (kind, pool) = &self.groups[group];
            for at in range {
                let Some(block) = pool.find(&keys[at]).filter(|block| pool.holders(*block) <= 1) else {
                    continue;
                };
                stake.blocks.push(CachedBlock { group, block, hash: keys[at].0 });
                let is_beginning = kind.is_full() || matches!(kind, CacheKind::UnquantizedPrefix { .. });
                first = if is_beginning { first.min(at) } else { 0 };
            }
        }
        stake.positions = first * self.block_size..keys.len() * self.block_size;
        stake
    }

    /// Makes the states findable of a sequence that is about to give its memory back. All of these keys' blocks can be
    /// found, and nothing was computed behind them.
    pub(crate) fn keep_states(&mut self, tables: &[BlockTable], keys: &[BlockKey]) {
        let Some(key) = keys.last().filter(|_| self.shares) else { return };
        for (table, (kind, pool)) in tables.iter().zip(&mut self.groups) {
            if let (CacheKind::State, Some(slot)) = (*kind, table.blocks.first()) {
                pool.seal(*slot, *key);
            }
        }
    }

    /// True for a block that has not been named to whoever keeps blocks elsewhere.
    pub(crate) fn is_fresh(&self, block: &CachedBlock) -> bool {
        self.groups.get(block.group).is_some_and(|(_, pool)| pool.is_fresh(block.block))
    }

    /// These blocks are named now.
    pub(crate) fn name(&mut self, blocks: &[CachedBlock]) {
        blocks.iter().for_each(|block| self.groups[block.group].1.no_longer_fresh(block.block));
    }

    /// True while a block can be found where it was.
    pub(crate) fn is_there(&self, block: &CachedBlock) -> bool {
        let found: Option<BlockId> =
            self.groups.get(block.group).and_then(|(_, pool)| pool.find(&BlockKey(block.hash)));
        found == Some(block.block)
    }
}
