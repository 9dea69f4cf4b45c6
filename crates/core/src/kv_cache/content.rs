//! The content of cached blocks: which blocks follow which, their tokens, and which were evicted.
//!
//! Invariant: describes one pool, so it has at most as many blocks, and a bounded number of evicted ones.

use std::collections::{BTreeMap, VecDeque};

use super::events::{CacheEvent, EventLog};
use crate::prefix::{BlockContent, BlockHash, BlockHashes};

/// Hashes of evicted blocks that are kept, for each block of the pool.
const LOST_PER_BLOCK: usize = 4;

/// The content of one pool's cached blocks.
#[derive(Debug, Clone)]
pub(crate) struct ContentIndex {
    /// By parent (a block, or the start of a sequence) and hash.
    children: BTreeMap<(BlockHash, BlockHash), BlockContent>,
    /// The parent of a block.
    parents: BTreeMap<BlockHash, BlockHash>,
    /// Evicted blocks, each with its place in `lost_order`.
    lost: BTreeMap<BlockHash, u64>,
    /// Oldest eviction first. Some are cached again.
    lost_order: VecDeque<(BlockHash, u64)>,
    lost_max: usize,
    losses: u64,
    log: EventLog,
}

impl ContentIndex {
    /// The empty index of a pool.
    pub(super) fn new(blocks: usize, log: EventLog) -> Self {
        let (children, parents, lost, lost_order, losses) = Default::default();
        Self { children, parents, lost, lost_order, lost_max: blocks * LOST_PER_BLOCK, losses, log }
    }

    /// The pool was emptied, and has this many blocks.
    pub(super) fn reset(&mut self, blocks: usize) {
        self.log.cleared();
        *self = Self::new(blocks, self.log.clone());
    }

    /// Block `at` of a sequence was cached under this hash.
    pub(super) fn cache_block(
        &mut self,
        hashes: &BlockHashes,
        at: usize,
        (hash, content): (BlockHash, BlockContent),
    ) {
        let parent = hashes.parent(at);
        self.log.stored((hash, (at > 0).then_some(parent)), hashes.adapter(), &content);
        self.insert(parent, hash, content);
    }

    /// What was cached and evicted since the last call, oldest first.
    pub(super) fn take_events(&mut self) -> Vec<CacheEvent> {
        self.log.take()
    }

    fn insert(&mut self, parent: BlockHash, hash: BlockHash, content: BlockContent) {
        self.lost.remove(&hash);
        self.parents.insert(hash, parent);
        self.children.insert((parent, hash), content);
    }

    /// A block was evicted.
    pub(crate) fn remove(&mut self, hash: BlockHash) {
        let Some(parent) = self.parents.remove(&hash) else { return };
        if let Some(content) = self.children.remove(&(parent, hash)) {
            self.log.removed(hash, &content);
        }
        self.lost.insert(hash, self.losses);
        self.lost_order.push_back((hash, self.losses));
        self.losses += 1;
        while self.lost_order.len() > self.lost_max {
            let Some((oldest, loss)) = self.lost_order.pop_front() else { return };
            if self.lost.get(&oldest) == Some(&loss) {
                self.lost.remove(&oldest);
            }
        }
    }

    /// True if the block was evicted recently.
    pub(crate) fn was_evicted(&self, hash: &BlockHash) -> bool {
        self.lost.contains_key(hash)
    }

    /// Of the blocks that follow `parent` and are `allowed`, the one with the longest common prefix with `content`, and its
    /// length in tokens.
    pub(crate) fn longest_partial_match(
        &self,
        parent: &BlockHash,
        content: &BlockContent,
        allowed: impl Fn(&BlockHash) -> bool,
    ) -> Option<(BlockHash, usize)> {
        let children = self.children.range((*parent, BlockHash(0))..=(*parent, BlockHash(u128::MAX)));
        let children = children.filter(|((_, hash), _)| allowed(hash));
        children.map(|((_, hash), other)| (*hash, content.common(other))).max_by_key(|(_, common)| *common)
    }

    /// Number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.parents.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Token;
    use crate::settings::CacheEvents;

    fn content(tokens: &[Token], mm_hashes: &[(usize, u128)]) -> BlockContent {
        BlockContent { tokens: tokens.into(), mm_hashes: mm_hashes.to_vec() }
    }

    #[test]
    fn blocks_match_until_a_token_or_its_content_differs() {
        let plain = content(&[1, 2, 3, 4], &[]);
        assert_eq!(plain.common(&content(&[1, 2, 9], &[])), 2);
        assert_eq!(plain.common(&content(&[1, 2, 3, 4], &[(1, 5)])), 1);
        assert_eq!(content(&[1, 2, 3], &[(1, 5)]).common(&content(&[1, 2], &[(1, 5)])), 2);
        assert_eq!(content(&[1, 2, 3], &[(1, 5), (2, 8)]).common(&content(&[1, 2, 3], &[(1, 5)])), 2);
    }

    #[test]
    fn evicted_blocks_are_remembered_for_a_while() {
        let mut index = ContentIndex::new(1, EventLog::new(CacheEvents::Ignored, 1));
        let key = |number| BlockHash(number);
        for number in 1..=5 {
            index.insert(key(0), key(number), content(&[number as Token], &[]));
            index.remove(key(number));
        }
        assert!(!index.was_evicted(&key(1)), "four for each block");
        assert!(index.was_evicted(&key(2)) && index.was_evicted(&key(5)));
        index.insert(key(0), key(5), content(&[5], &[]));
        assert!(!index.was_evicted(&key(5)), "it is cached again");
        assert_eq!(index.longest_partial_match(&key(0), &content(&[5, 6], &[]), |_| true), Some((key(5), 1)));
        assert_eq!(index.longest_partial_match(&key(1), &content(&[5, 6], &[]), |_| true), None);
        assert_eq!(index.len(), 1);
    }
}
