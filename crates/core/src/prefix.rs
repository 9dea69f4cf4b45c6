//! Names the content of blocks, so that equal beginnings are found.
//!
//! A block's key depends on its tokens, on all tokens before it and on the salt: two blocks of equal key hold equal
//! keys and values. Clients choose tokens, so the hash must resist them: half of SHA-256.

use sha2::{Digest, Sha256};

use crate::Token;

/// Names the content of a full block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockKey(pub(crate) u128);

/// The keys of a sequence's full blocks, in order.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    root: BlockKey,
    block_size: usize,
    keys: Vec<BlockKey>,
}

impl Chain {
    /// The chain of an empty sequence.
    pub(crate) fn new(salt: u64, block_size: usize) -> Self {
        let root = digest(Sha256::new().chain_update(b"omnibus").chain_update(salt.to_le_bytes()));
        Self { root, block_size, keys: Vec::new() }
    }

    /// One for each full block.
    pub(crate) fn keys(&self) -> &[BlockKey] {
        &self.keys
    }

    /// Adds the keys of blocks that have become full. `tokens` is the whole sequence and only ever grows.
    pub(crate) fn extend(&mut self, tokens: &[Token]) {
        let done = self.keys.len() * self.block_size;
        for block in tokens[done..].chunks_exact(self.block_size) {
            let parent = self.keys.last().copied().unwrap_or(self.root);
            let mut hash = Sha256::new().chain_update(parent.0.to_le_bytes());
            block.iter().for_each(|token| hash.update(token.to_le_bytes()));
            self.keys.push(digest(hash));
        }
    }
}

fn digest(hash: Sha256) -> BlockKey {
    let bytes = hash.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&bytes[..16]);
    BlockKey(u128::from_le_bytes(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(salt: u64, tokens: &[Token]) -> Vec<BlockKey> {
        let mut chain = Chain::new(salt, 2);
        chain.extend(tokens);
        chain.keys().to_vec()
    }

    #[test]
    fn a_key_depends_on_everything_before_it() {
        assert_eq!(keys(1, &[1, 2, 3, 4, 5]).len(), 2, "only full blocks have one");
        assert_eq!(keys(1, &[1, 2, 3, 4])[0], keys(1, &[1, 2, 9, 9])[0]);
        assert_ne!(keys(1, &[1, 2, 3, 4])[1], keys(1, &[9, 9, 3, 4])[1]);
        assert_ne!(keys(1, &[1, 2]), keys(2, &[1, 2]));
    }

    #[test]
    fn a_chain_grown_in_pieces_is_the_same() {
        let mut chain = Chain::new(1, 2);
        (1..=5).for_each(|end| chain.extend(&[1, 2, 3, 4, 5][..end]));
        assert_eq!(chain.keys(), keys(1, &[1, 2, 3, 4, 5]));
    }
}
