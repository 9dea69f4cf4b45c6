//! Places in one piece of memory that arrays share one after another.

use std::collections::BTreeMap;
use std::ops::Range;

/// Every array begins at a multiple of this many bytes.
const ALIGNMENT: u64 = 256;

/// Memory that grows as it is taken.
#[derive(Debug, Default)]
pub(super) struct Arena {
    taken: BTreeMap<u32, Range<u64>>,
    /// Gaps by where they begin; none touches another.
    free: BTreeMap<u64, u64>,
    size: u64,
}

impl Arena {
    /// Where `value` is: in the first gap that has room, else after everything.
    pub(super) fn take(&mut self, value: u32, bytes: u64) -> u64 {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let gap =
            self.free.iter().find(|(start, end)| *end - *start >= bytes).map(|(start, end)| *start..*end);
        let start = match gap {
            Some(gap) => {
                self.free.remove(&gap.start);
                if gap.start + bytes < gap.end {
                    self.free.insert(gap.start + bytes, gap.end);
                }
                gap.start
            }
            None => {
                self.size += bytes;
                self.size - bytes
            }
        };
        self.taken.insert(value, start..start + bytes);
        start
    }

    /// The memory of `value` may be taken again.
    pub(super) fn give_back(&mut self, value: u32) {
        let Some(Range { mut start, mut end }) = self.taken.remove(&value) else { return };
        if let Some(next) = self.free.remove(&end) {
            end = next;
        }
        if let Some((before, _)) = self.free.range(..start).next_back().filter(|(_, to)| **to == start) {
            start = *before;
        }
        self.free.insert(start, end);
    }

    /// Bytes in all.
    pub(super) fn size(&self) -> u64 {
        self.size
    }
}
