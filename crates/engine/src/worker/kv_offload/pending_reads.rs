//! Reads in progress, their sequences and their start times.
//!
//! Invariant: results come in the order of the requests, so an expired read keeps its place until its result has come.

use std::collections::VecDeque;

use omnibus_core::{SequenceId, Tick};

/// Reads in progress, oldest first. `None` where the sequence no longer waits.
#[derive(Debug)]
pub(super) struct PendingReads {
    reads: VecDeque<Option<(SequenceId, Tick)>>,
    /// A read that takes longer counts as hung: the prompt is computed instead.
    timeout: Tick,
}

impl PendingReads {
    /// None, of a store that may take so long.
    pub(super) fn new(timeout: Tick) -> Self {
        Self { reads: VecDeque::new(), timeout }
    }

    /// A read was started for a sequence, which is held until its result.
    pub(super) fn push(&mut self, id: SequenceId, now: Tick) {
        self.reads.push_back(Some((id, now)));
    }

    /// The oldest read has finished. Returns its sequence, if it still waits.
    pub(super) fn complete(&mut self) -> Option<SequenceId> {
        self.reads.pop_front().flatten().map(|(id, _)| id)
    }

    /// Sequences whose reads have timed out. They no longer wait.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<SequenceId> {
        let late = |started: &Tick| now.saturating_sub(*started) >= self.timeout;
        let slots =
            self.reads.iter_mut().filter(|slot| slot.as_ref().is_some_and(|(_, started)| late(started)));
        slots.filter_map(Option::take).map(|(id, _)| id).collect()
    }

    /// No more results will come. Returns the sequences that waited.
    pub(super) fn fail_all(&mut self) -> Vec<SequenceId> {
        self.reads.drain(..).flatten().map(|(id, _)| id).collect()
    }

    /// Detaches all reads from their sequences; their results still come.
    pub(super) fn detach(&mut self) {
        self.reads.iter_mut().for_each(|slot| *slot = None);
    }

    /// True while a sequence waits.
    pub(super) fn is_any(&self) -> bool {
        self.reads.iter().any(Option::is_some)
    }

    /// True while the next result to come has expired: a new read would wait for it.
    pub(super) fn is_stalled(&self) -> bool {
        self.reads.front().is_some_and(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Tick = 5_000_000;

    #[test]
    fn reads_time_out_and_late_results_keep_their_order() {
        let [first, second, third] = [1, 2, 3].map(SequenceId);
        let mut reading = PendingReads::new(TIMEOUT);
        reading.push(first, 1_000);
        reading.push(second, 1_001);
        assert_eq!(reading.expire(TIMEOUT + 999), []);
        assert_eq!(reading.expire(TIMEOUT + 1_000), [first]);
        assert_eq!(reading.expire(TIMEOUT + 1_000), [], "once");
        assert!(reading.is_any() && reading.is_stalled());
        assert_eq!(reading.complete(), None, "it came too late");
        assert!(!reading.is_stalled());
        reading.push(third, 2_000);
        assert_eq!(reading.complete(), Some(second));
        assert_eq!(reading.fail_all(), [third]);
        assert!(!reading.is_any());
    }
}
