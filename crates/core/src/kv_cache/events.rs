//! What becomes of cached blocks, for routers that send requests where their prefix is cached.
//!
//! Invariant: full blocks of the content index only. Applied in order, the events give its full blocks. Nothing is kept
//! unless the settings say so, and nothing longer than until [`EventLog::take`].

use crate::prefix::{BlockContent, BlockHash};
use crate::request::Token;
use crate::settings::CacheEvents;

/// A change of the prefix cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEvent {
    /// A full block was cached.
    Stored(StoredBlock),
    /// The block with this hash was evicted.
    Removed(u128),
    /// The cache was emptied.
    Cleared,
}

/// A full block that was cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlock {
    /// The hash of its content and of all before it.
    pub hash: u128,
    /// The hash of the block before it; none for the first one of a sequence.
    pub parent: Option<u128>,
    /// Its tokens, as many as a block has.
    pub tokens: Vec<Token>,
    /// The adapter that it was computed with, or zero.
    pub adapter: u128,
}

/// The events since they were taken last.
#[derive(Debug, Clone)]
pub(super) struct EventLog {
    kept: CacheEvents,
    block_size: usize,
    events: Vec<CacheEvent>,
}

impl EventLog {
    /// An empty log.
    pub(super) fn new(kept: CacheEvents, block_size: usize) -> Self {
        Self { kept, block_size, events: Vec::new() }
    }

    /// A block was cached after `parent`; partial ones are skipped.
    pub(super) fn stored(
        &mut self,
        (hash, parent): (BlockHash, Option<BlockHash>),
        adapter: u128,
        content: &BlockContent,
    ) {
        if self.keeps(content) {
            let tokens = content.tokens.to_vec();
            let parent = parent.map(|parent| parent.0);
            self.events.push(CacheEvent::Stored(StoredBlock { hash: hash.0, parent, tokens, adapter }));
        }
    }

    /// A block with this content was evicted.
    pub(super) fn removed(&mut self, hash: BlockHash, content: &BlockContent) {
        if self.keeps(content) {
            self.events.push(CacheEvent::Removed(hash.0));
        }
    }

    /// All blocks were evicted, which makes earlier events pointless.
    pub(super) fn cleared(&mut self) {
        if self.kept == CacheEvents::Kept {
            self.events = vec![CacheEvent::Cleared];
        }
    }

    /// The events since the last call, oldest first.
    pub(super) fn take(&mut self) -> Vec<CacheEvent> {
        std::mem::take(&mut self.events)
    }

    fn keeps(&self, content: &BlockContent) -> bool {
        self.kept == CacheEvents::Kept && content.tokens.len() == self.block_size
    }
}
