//! What a process that ended left behind: memory that the machine has less of when the next one starts.
//!
//! Macs were seen to keep the GPU's memory of processes that were killed. What other programs took meanwhile counts as well, so it
//! is a hint.
//!
//! Invariant: pure; readings are arguments.

use crate::available_memory::missing_bytes;

/// The memory that the machine had to spare before the first process started.
#[derive(Debug, Default)]
pub(super) struct MemoryLeft {
    before: Option<u64>,
}

impl MemoryLeft {
    /// A process is about to start, and the machine has so many bytes to spare. How many fewer than before the first one, if that
    /// is worth a word.
    pub(super) fn starting(&mut self, available: Option<u64>) -> Option<u64> {
        let available = available?;
        let before = *self.before.get_or_insert(available);
        missing_bytes(before, available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_missing_since_the_first_start_is_said() {
        let mut left = MemoryLeft::default();
        let starts =
            [Some(40 * GIB), Some(40 * GIB - 1), Some(28 * GIB), None, Some(41 * GIB), Some(39 * GIB)];
        let said = starts.map(|available| left.starting(available));
        assert_eq!(said, [None, None, Some(12 * GIB), None, None, Some(GIB)]);
    }

    #[test]
    fn an_unknown_first_reading_is_replaced_by_the_next() {
        let mut left = MemoryLeft::default();
        assert_eq!(
            [None, Some(8 * GIB), Some(4 * GIB)].map(|available| left.starting(available)),
            [None, None, Some(4 * GIB)]
        );
    }
}
