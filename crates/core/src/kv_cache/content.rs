//! The content of cached blocks: which blocks follow which, their tokens, and which were evicted.
//!
//! Invariant: describes one pool, so it has at most as many blocks, and a bounded number of evicted ones.

use std::collections::{BTreeMap, VecDeque};

use crate::prefix::{BlockContent, BlockHash};

/// Hashes of evicted blocks that are kept, for each block of the pool.
const LOST_PER_BLOCK: usize = 4;

/// The content of one pool's cached blocks.
#[derive(Debug, Clone)]
pub(crate) struct ContentIndex {
    /// The blocks that follow a block, or the start of a sequence.
    next: BTreeMap<BlockHash, BTreeMap<BlockHash, BlockContent>>,
    /// The parent of a block.
    before: BTreeMap<BlockHash, BlockHash>,
    /// Evicted blocks, each with its place in `lost_order`.
    lost: BTreeMap<BlockHash, u64>,
    /// Oldest eviction first. Some are cached again.
    lost_order: VecDeque<(BlockHash, u64)>,
    lost_max: usize,
    losses: u64,
}

impl ContentIndex {
    /// The empty index of a pool.
    pub(crate) fn new(blocks: usize) -> Self {
        let (next, before, lost, lost_order, losses) = Default::default();
        Self { next, before, lost, lost_order, lost_max: blocks * LOST_PER_BLOCK, losses }
    }

    /// A block was cached.
    pub(crate) fn insert(&mut self, before: BlockHash, key: BlockHash, content: BlockContent) {
        self.lost.remove(&key);
        self.before.insert(key, before);
        self.next.entry(before).or_default().insert(key, content);
    }

    /// A block was evicted.
    pub(crate) fn remove(&mut self, key: BlockHash) {
        let Some(before) = self.before.remove(&key) else { return };
        if let Some(siblings) = self.next.get_mut(&before) {
            siblings.remove(&key);
            if siblings.is_empty() {
                self.next.remove(&before);
            }
        }
        self.lost.insert(key, self.losses);
        self.lost_order.push_back((key, self.losses));
        self.losses += 1;
        while self.lost_order.len() > self.lost_max {
            let Some((oldest, loss)) = self.lost_order.pop_front() else { return };
            if self.lost.get(&oldest) == Some(&loss) {
                self.lost.remove(&oldest);
            }
        }
    }

    /// True if the block was evicted recently.
    pub(crate) fn was_evicted(&self, key: &BlockHash) -> bool {
        self.lost.contains_key(key)
    }

    /// Of the blocks that follow `before` and are `allowed`, the one with the longest common prefix with `content`, and its
    /// length in tokens.
    pub(crate) fn longest_partial_match(
        &self,
        before: &BlockHash,
        content: &BlockContent,
        allowed: impl Fn(&BlockHash) -> bool,
    ) -> Option<(BlockHash, usize)> {
        let siblings = self.next.get(before)?.iter().filter(|(key, _)| allowed(key));
        siblings.map(|(key, other)| (*key, content.common(other))).max_by_key(|(_, common)| *common)
    }

    /// Number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.before.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    fn content(tokens: &[Token], mm_hashes: &[(usize, u128)]) -> BlockContent {
        BlockContent { tokens: tokens.to_vec(), mm_hashes: mm_hashes.to_vec() }
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
        let mut index = ContentIndex::new(1);
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
