//! Blocks out of a stream of bytes: one record after the other, each a header and a block's bytes, as a file of the disk cache.
//!
//! Invariant: never more memory than the largest block that was requested, whatever comes.

use std::collections::VecDeque;

use crate::block::{BlockHeader, BlockName, Fingerprint, HEADER_BYTES, Mismatch};

/// Takes in a stream, and gives the blocks in it.
pub struct Records {
    fingerprint: Fingerprint,
    /// Blocks that may still come, in this order, with their bytes. Some may be left out.
    expected: VecDeque<(BlockName, usize)>,
    /// The header of the block that is coming.
    header: Vec<u8>,
    /// The block that is coming: its name, its bytes so far and their number in the end.
    coming: Option<(BlockHeader, BlockName, Vec<u8>, usize)>,
}

/// What is wrong with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A block is not as it was written.
    #[error("a block is invalid: {0}")]
    Invalid(#[from] Mismatch),
    /// It has a block that was not requested, or blocks in another order.
    #[error("there is a block that was not requested")]
    NotAsked,
    /// It ends inside a block.
    #[error("the stream ends inside a block")]
    Truncated,
}

impl Records {
    /// Of a stream that may have these blocks, each of so many bytes, in this order.
    pub fn new(fingerprint: Fingerprint, expected: impl IntoIterator<Item = (BlockName, usize)>) -> Self {
        let header = Vec::with_capacity(HEADER_BYTES);
        Self { fingerprint, expected: expected.into_iter().collect(), header, coming: None }
    }

    /// Takes in the next bytes and returns the blocks that they complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<(BlockName, Vec<u8>)>, RecordError> {
        let mut complete = Vec::new();
        loop {
            if self.coming.is_none() && !self.take_header(&mut bytes)? {
                return Ok(complete);
            }
            let Some((_, _, content, whole)) = &mut self.coming else { return Ok(complete) };
            let taken = bytes.len().min(*whole - content.len());
            let (now, later) = bytes.split_at(taken);
            content.extend_from_slice(now);
            bytes = later;
            if content.len() < *whole {
                return Ok(complete);
            }
            if let Some((header, name, content, _)) = self.coming.take() {
                header.check(&self.fingerprint, name, &content)?;
                complete.push((name, content));
            }
        }
    }

    /// The stream has ended.
    pub fn finish(self) -> Result<(), RecordError> {
        match self.coming.is_none() && self.header.is_empty() {
            true => Ok(()),
            false => Err(RecordError::Truncated),
        }
    }

    /// Takes bytes of a header. True once it is there: it is of a block that was requested.
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<bool, RecordError> {
        if bytes.is_empty() {
            return Ok(false);
        }
        if self.expected.is_empty() {
            return Err(RecordError::NotAsked);
        }
        let (now, later) = bytes.split_at(bytes.len().min(HEADER_BYTES - self.header.len()));
        self.header.extend_from_slice(now);
        *bytes = later;
        let Ok(header) = <[u8; HEADER_BYTES]>::try_from(self.header.as_slice()) else { return Ok(false) };
        let header = BlockHeader::read(header);
        self.header.clear();
        while let Some((name, whole)) = self.expected.pop_front() {
            if name == header.name() {
                self.coming = Some((header, name, Vec::with_capacity(whole), whole));
                return Ok(true);
            }
        }
        Err(RecordError::NotAsked)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODEL: Fingerprint = Fingerprint([3; 32]);

    fn stream(blocks: &[(u128, Vec<u8>)]) -> Vec<u8> {
        let record = |(key, bytes): &(u128, Vec<u8>)| {
            let name = BlockName { group: 0, key: *key };
            [BlockHeader::of(&MODEL, name, bytes).bytes().as_slice(), bytes].concat()
        };
        blocks.iter().flat_map(record).collect()
    }

    fn records(blocks: &[(u128, Vec<u8>)]) -> Records {
        let name = |(key, bytes): &(u128, Vec<u8>)| (BlockName { group: 0, key: *key }, bytes.len());
        Records::new(MODEL, blocks.iter().map(name))
    }

    fn blocks() -> impl Strategy<Value = Vec<(u128, Vec<u8>)>> {
        let sizes = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5);
        sizes.prop_map(|blocks| blocks.into_iter().enumerate().map(|(key, b)| (key as u128, b)).collect())
    }

    proptest! {
        #[test]
        fn blocks_come_out_as_they_went_in_however_the_stream_is_cut(
            blocks in blocks(),
            cut in 1_usize..30,
            left_out in any::<prop::sample::Index>(),
        ) {
            let mut sent = blocks.clone();
            sent.remove(left_out.index(blocks.len()));
            let mut records = records(&blocks);
            let mut got = Vec::new();
            for piece in stream(&sent).chunks(cut) {
                got.extend(records.push(piece).unwrap());
            }
            prop_assert_eq!(records.finish(), Ok(()));
            let got: Vec<(u128, Vec<u8>)> = got.into_iter().map(|(name, bytes)| (name.key, bytes)).collect();
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn a_changed_byte_or_a_cut_is_an_error(blocks in blocks(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let sent = stream(&blocks);
            let mut changed = sent.clone();
            changed[at.index(sent.len())] ^= 1_u8 << bit;
            let mut received = records(&blocks);
            prop_assert!(received.push(&changed).and_then(|_| received.finish()).is_err());
            let cut = 1 + at.index(sent.len() - 1);
            let mut received = records(&blocks);
            let got = received.push(&sent[..cut]).unwrap().len();
            prop_assert!(received.finish().is_err() || got < blocks.len());
        }
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        let blocks = [(1, vec![1; 8]), (2, vec![2; 8])];
        let mut flood = records(&blocks[..1]);
        assert_eq!(flood.push(&stream(&blocks)), Err(RecordError::NotAsked));
        let mut swapped = records(&[blocks[1].clone(), blocks[0].clone()]);
        assert_eq!(swapped.push(&stream(&blocks)), Err(RecordError::NotAsked));
    }
}
