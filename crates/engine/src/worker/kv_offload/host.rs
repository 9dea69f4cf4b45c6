//! Blocks of preempted sequences in host memory.
//!
//! Invariant: never more bytes than the limit; the least recently used blocks are evicted.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::disk::BlockName;

/// Blocks in host memory.
#[derive(Debug, Default)]
pub(super) struct Host {
    limit_bytes: u64,
    bytes: u64,
    blocks: BTreeMap<BlockName, (u64, Bytes)>,
    /// Least recently used first.
    by_age: BTreeMap<u64, BlockName>,
    uses: u64,
}

impl Host {
    /// An empty store. Memory is allocated as needed.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, ..Self::default() }
    }

    pub(super) fn has(&self, name: BlockName) -> bool {
        self.blocks.contains_key(&name)
    }

    pub(super) fn get(&self, name: BlockName) -> Option<&Bytes> {
        self.blocks.get(&name).map(|(_, bytes)| bytes)
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Most bytes.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Marks a block as used.
    pub(super) fn touch(&mut self, name: BlockName) {
        if let Some((used, _)) = self.blocks.get_mut(&name) {
            self.by_age.remove(used);
            *used = self.uses;
            self.by_age.insert(self.uses, name);
            self.uses += 1;
        }
    }

    /// Adds a block, and evicts others for it. A block larger than the limit is dropped.
    pub(super) fn put(&mut self, name: BlockName, bytes: Bytes) {
        let size = bytes.len() as u64;
        if size > self.limit_bytes || self.has(name) {
            return;
        }
        while self.bytes + size > self.limit_bytes {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.bytes -= self.blocks.remove(&oldest).map_or(0, |(_, bytes)| bytes.len() as u64);
        }
        self.bytes += size;
        self.by_age.insert(self.uses, name);
        self.blocks.insert(name, (self.uses, bytes));
        self.uses += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: u128) -> BlockName {
        BlockName { group: 0, key }
    }

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut host = Host::new(25);
        (1..=2).for_each(|key| host.put(name(key), vec![key as u8; 10].into()));
        host.touch(name(1));
        host.put(name(3), vec![3; 10].into());
        assert_eq!([1, 2, 3].map(|key| host.has(name(key))), [true, false, true]);
        assert_eq!((host.bytes(), host.get(name(1)).map(AsRef::as_ref)), (20, Some(&[1; 10][..])));
        host.put(name(4), vec![4; 26].into());
        assert!(!host.has(name(4)) && host.has(name(1)), "a block that never fits evicts nothing");
        host.put(name(5), vec![5; 25].into());
        assert_eq!((host.bytes(), host.has(name(5))), (25, true));
    }
}
