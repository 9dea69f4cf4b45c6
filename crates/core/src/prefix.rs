//! Hashes of the content of blocks, so that equal prefixes are found.
//!
//! A block's hash depends on its tokens, on their multimodal content, on all tokens before it, on the adapter and on the
//! salt: two blocks of equal hash hold equal keys and values. Clients choose tokens, so collisions must be infeasible:
//! half of SHA-256.

use std::ops::Range;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::request::{Request, Token};
use crate::spans::Spans;

/// The content of a block: its tokens, perhaps fewer than fit, and the multimodal content of some of them. Blocks of the
/// default size need no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockContent {
    pub(crate) tokens: SmallVec<[Token; 32]>,
    /// Index in the block, and content hash.
    pub(crate) mm_hashes: Vec<(usize, u128)>,
}

impl BlockContent {
    /// The number of equal leading tokens with equal content.
    pub(crate) fn common(&self, other: &Self) -> usize {
        let pairs = self.tokens.iter().zip(&other.tokens);
        let alike = pairs.take_while(|(one, another)| one == another).count();
        let only = |content: &Self, than: &Self| {
            let lone = content.mm_hashes.iter().find(|mark| !than.mm_hashes.contains(mark));
            lone.map_or(usize::MAX, |(at, _)| *at)
        };
        alike.min(only(self, other)).min(only(other, self))
    }
}

/// The hash of a block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockHash(pub(crate) u128);

/// The hashes of a sequence's full blocks, in order.
#[derive(Debug, Clone)]
pub(crate) struct BlockHashes {
    root: BlockHash,
    adapter: u128,
    block_size: usize,
    /// [`Request::mm_hashes`], and a hash of each span at its start.
    mm_hashes: Vec<(usize, u128)>,
    hashes: Vec<BlockHash>,
}

impl BlockHashes {
    /// The hashes of a request's sequence, before its tokens.
    pub(crate) fn new(request: &Request, block_size: usize) -> Self {
        let root = Sha256::new()
            .chain_update(b"omnibus")
            .chain_update(request.cache_salt.to_le_bytes())
            .chain_update(request.adapter.to_le_bytes());
        let mut mm_hashes = request.mm_hashes.clone();
        mm_hashes.extend(Spans::new(&request.spans, request.prompt.len()).iter().map(|span| {
            // From its start on, keys depend on all of a span.
            (span.start, span_hash(request, span))
        }));
        mm_hashes.sort_by_key(|(at, _)| *at);
        Self { root: digest(root), adapter: request.adapter, block_size, mm_hashes, hashes: Vec::new() }
    }

    /// The adapter of the sequence, or zero.
    pub(crate) fn adapter(&self) -> u128 {
        self.adapter
    }

    /// True if tokens, salt and adapter are all that the hashes depend on.
    pub(crate) fn is_text(&self) -> bool {
        self.mm_hashes.is_empty()
    }

    /// One for each full block.
    pub(crate) fn all(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// Adds the hashes of blocks that have become full. `tokens` is the whole sequence and only grows.
    pub(crate) fn extend(&mut self, tokens: &[Token]) {
        let done = self.hashes.len() * self.block_size;
        for _ in tokens[done..].chunks_exact(self.block_size) {
            let block = self.hashes.len();
            let mut hash = Sha256::new().chain_update(self.parent(block).0.to_le_bytes());
            // Full blocks have equally many tokens, so that a content hash is not mistaken for tokens.
            self.content(block, tokens).hash_into(&mut hash);
            self.hashes.push(digest(hash));
        }
    }

    /// The hash of the block before it, or of the start.
    pub(crate) fn parent(&self, block: usize) -> BlockHash {
        block.checked_sub(1).and_then(|before| self.hashes.get(before)).copied().unwrap_or(self.root)
    }

    /// The hash of the first block of these tokens without the salt. None if it is not full.
    pub(crate) fn first_block_hash(&self, tokens: &[Token]) -> Option<BlockHash> {
        let content = self.content(0, tokens);
        if content.tokens.len() < self.block_size {
            return None;
        }
        let mut hash = Sha256::new().chain_update(b"any salt").chain_update(self.adapter.to_le_bytes());
        content.hash_into(&mut hash);
        Some(digest(hash))
    }

    /// The hash of a partial block with these tokens. Never the hash of a full block.
    pub(crate) fn partial_hash(&self, block: usize, content: &BlockContent) -> BlockHash {
        let mut hash = Sha256::new()
            .chain_update(b"tail")
            .chain_update(self.parent(block).0.to_le_bytes())
            .chain_update((content.tokens.len() as u64).to_le_bytes());
        content.hash_into(&mut hash);
        digest(hash)
    }

    /// The content of a block. `tokens`: the whole sequence, or its prefix.
    pub(crate) fn content(&self, block: usize, tokens: &[Token]) -> BlockContent {
        let start = block * self.block_size;
        let end = tokens.len().min(start + self.block_size);
        let tokens = tokens.get(start..end).unwrap_or_default();
        let mm_hashes = self.mm_hashes_in(block).filter(|(at, _)| *at < tokens.len()).collect();
        BlockContent { tokens: tokens.into(), mm_hashes }
    }

    /// The content hashes in a block, by their index in it.
    fn mm_hashes_in(&self, block: usize) -> impl Iterator<Item = (usize, u128)> {
        let start = block * self.block_size;
        let inside =
            self.mm_hashes.iter().filter(move |(at, _)| (start..start + self.block_size).contains(at));
        inside.map(move |(at, content)| (at - start, *content))
    }
}

impl BlockContent {
    fn hash_into(&self, hash: &mut Sha256) {
        self.tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        for (offset, content) in &self.mm_hashes {
            hash.update((*offset as u64).to_le_bytes());
            hash.update(content.to_le_bytes());
        }
    }
}

/// The hash of all tokens of a span and of their multimodal content.
fn span_hash(request: &Request, span: &Range<usize>) -> u128 {
    let mut hash = Sha256::new().chain_update(b"span").chain_update((span.len() as u64).to_le_bytes());
    let tokens = request.prompt.get(span.clone()).unwrap_or_default();
    tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
    for (at, content) in request.mm_hashes.iter().filter(|(at, _)| span.contains(at)) {
        hash.update((*at as u64).to_le_bytes());
        hash.update(content.to_le_bytes());
    }
    digest(hash).0
}

fn digest(hash: Sha256) -> BlockHash {
    let bytes = hash.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&bytes[..16]);
    BlockHash(u128::from_le_bytes(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(salt: u128, tokens: &[Token]) -> Vec<BlockHash> {
        hashes_of(&Request { cache_salt: salt, ..Request::new(tokens.to_vec(), 1) })
    }

    fn hashes_of(request: &Request) -> Vec<BlockHash> {
        let mut hashes = BlockHashes::new(request, 2);
        hashes.extend(&request.prompt);
        hashes.all().to_vec()
    }

    #[test]
    fn a_hash_depends_on_multimodal_content_and_on_the_adapter() {
        let plain = Request::new(vec![1, 2, 3, 4, 5, 6], 1);
        let marked = |at, content| hashes_of(&Request { mm_hashes: vec![(at, content)], ..plain.clone() });
        let bare = hashes_of(&plain);
        assert_eq!(marked(2, 7)[0], bare[0], "what is before an image does not depend on it");
        assert_ne!(marked(2, 7)[1], bare[1]);
        assert_ne!(marked(2, 7)[2], bare[2]);
        assert_ne!(marked(2, 7)[1], marked(3, 7)[1]);
        assert_ne!(marked(2, 7)[1], marked(2, 8)[1]);
        assert_ne!(hashes_of(&Request { adapter: 1, ..plain.clone() })[0], bare[0]);
    }

    /// Equal blocks inside of unequal spans hold unequal keys.
    #[test]
    fn a_hash_depends_on_all_of_a_span_that_has_begun() {
        let of = |prompt: [Token; 6], span: Range<usize>| {
            hashes_of(&Request { spans: vec![span], ..Request::new(prompt.to_vec(), 1) })
        };
        let (one, other) = (of([1, 2, 3, 4, 5, 6], 2..6), of([1, 2, 3, 4, 5, 7], 2..6));
        assert_eq!((one[0], one[0]), (other[0], hashes(0, &[1, 2])[0]), "it has not begun");
        assert_ne!(one[1], other[1]);
        assert_ne!(one[1], of([1, 2, 3, 4, 5, 6], 2..5)[1]);
        assert_ne!(one[1], of([1, 2, 3, 4, 5, 6], 2..3)[1], "one position is no span");
        assert_eq!(of([1, 2, 3, 4, 5, 6], 2..3), hashes(0, &[1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn a_hash_depends_on_everything_before_it() {
        assert_eq!(hashes(1, &[1, 2, 3, 4, 5]).len(), 2, "only full blocks have one");
        assert_eq!(hashes(1, &[1, 2, 3, 4])[0], hashes(1, &[1, 2, 9, 9])[0]);
        assert_ne!(hashes(1, &[1, 2, 3, 4])[1], hashes(1, &[9, 9, 3, 4])[1]);
        assert_ne!(hashes(1, &[1, 2]), hashes(2, &[1, 2]));
    }

    #[test]
    fn hashes_do_not_depend_on_how_tokens_are_added() {
        let mut chain = BlockHashes::new(&Request { cache_salt: 1, ..Request::new(vec![], 1) }, 2);
        (1..=5).for_each(|end| chain.extend(&[1, 2, 3, 4, 5][..end]));
        assert_eq!(chain.all(), hashes(1, &[1, 2, 3, 4, 5]));
    }
}
