//! For whom blocks are being read, and since when.
//!
//! Invariant: answers come in the order of the questions, so a question that nobody waits for any more keeps its place
//! until its answer has come.

use std::collections::VecDeque;

use omnibus_core::{SequenceId, Tick};

/// A disk that has not answered for so long hangs, for all that anybody can tell: computing is sooner.
const PATIENCE: Tick = 5_000_000;

/// For whom blocks are being read, and since when; the oldest question first. `None` where nobody waits any more.
#[derive(Debug, Default)]
pub(super) struct Reading(VecDeque<Option<(SequenceId, Tick)>>);

impl Reading {
    /// A question was asked for a sequence that is held until its answer.
    pub(super) fn ask(&mut self, id: SequenceId, now: Tick) {
        self.0.push_back(Some((id, now)));
    }

    /// The oldest question was answered. For whom, if that one still waits.
    pub(super) fn answered(&mut self) -> Option<SequenceId> {
        self.0.pop_front().flatten().map(|(id, _)| id)
    }

    /// Those who have waited for too long. They wait no more.
    pub(super) fn overdue(&mut self, now: Tick) -> Vec<SequenceId> {
        let late = |asked: &Tick| now.saturating_sub(*asked) >= PATIENCE;
        let slots = self.0.iter_mut().filter(|slot| slot.as_ref().is_some_and(|(_, asked)| late(asked)));
        slots.filter_map(Option::take).map(|(id, _)| id).collect()
    }

    /// No answer will come any more. Who waited for one.
    pub(super) fn end(&mut self) -> Vec<SequenceId> {
        self.0.drain(..).flatten().map(|(id, _)| id).collect()
    }

    /// Forgets for whom the questions were, not that they were asked.
    pub(super) fn disown(&mut self) {
        self.0.iter_mut().for_each(|slot| *slot = None);
    }

    /// True while somebody waits.
    pub(super) fn is_any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// True when nobody waits any more for the answer that is to come next: a new question would come to nothing, too.
    pub(super) fn is_stuck(&self) -> bool {
        self.0.front().is_some_and(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_too_long_waits_no_more_and_late_answers_keep_their_order() {
        let [first, second, third] = [1, 2, 3].map(SequenceId);
        let mut reading = Reading::default();
        reading.ask(first, 1_000);
        reading.ask(second, 1_001);
        assert_eq!(reading.overdue(PATIENCE + 999), []);
        assert_eq!(reading.overdue(PATIENCE + 1_000), [first]);
        assert_eq!(reading.overdue(PATIENCE + 1_000), [], "once");
        assert!(reading.is_any() && reading.is_stuck());
        assert_eq!(reading.answered(), None, "it came too late");
        assert!(!reading.is_stuck());
        reading.ask(third, 2_000);
        assert_eq!(reading.answered(), Some(second));
        assert_eq!(reading.end(), [third]);
        assert!(!reading.is_any());
    }
}
