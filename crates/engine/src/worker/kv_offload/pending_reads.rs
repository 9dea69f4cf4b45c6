//! Reads in progress, their sequences and their start times.
//!
//! Invariant: results come in the order of the requests, so an expired read keeps its place until its result has come.

use std::collections::VecDeque;

use omnibus_core::{SequenceId, Tick};

/// A read that takes longer counts as hung: the prompt is computed instead.
const TIMEOUT: Tick = 5_000_000;

/// Reads in progress, oldest first. `None` where the sequence no longer waits.
#[derive(Debug, Default)]
pub(super) struct PendingReads(VecDeque<Option<(SequenceId, Tick)>>);

impl PendingReads {
    /// A read was started for a sequence, which is held until its result.
    pub(super) fn push(&mut self, id: SequenceId, now: Tick) {
        self.0.push_back(Some((id, now)));
    }

    /// The oldest read has finished. Returns its sequence, if it still waits.
    pub(super) fn complete(&mut self) -> Option<SequenceId> {
        self.0.pop_front().flatten().map(|(id, _)| id)
    }

    /// Sequences whose reads have timed out. They no longer wait.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<SequenceId> {
        let late = |started: &Tick| now.saturating_sub(*started) >= TIMEOUT;
        let slots = self.0.iter_mut().filter(|slot| slot.as_ref().is_some_and(|(_, started)| late(started)));
        slots.filter_map(Option::take).map(|(id, _)| id).collect()
    }

    /// No more results will come. Returns the sequences that waited.
    pub(super) fn fail_all(&mut self) -> Vec<SequenceId> {
        self.0.drain(..).flatten().map(|(id, _)| id).collect()
    }

    /// Detaches all reads from their sequences; their results still come.
    pub(super) fn detach(&mut self) {
        self.0.iter_mut().for_each(|slot| *slot = None);
    }

    /// True while a sequence waits.
    pub(super) fn is_any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// True while the next result to come has expired: a new read would wait for it.
    pub(super) fn is_stalled(&self) -> bool {
        self.0.front().is_some_and(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_time_out_and_late_results_keep_their_order() {
        let [first, second, third] = [1, 2, 3].map(SequenceId);
        let mut reading = PendingReads::default();
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
