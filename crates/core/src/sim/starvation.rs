//! Whether the oldest sequence is passed over for too long.
//!
//! A step passes a sequence over if it was the oldest both when the step was launched and when the step was done, and
//! is not in it. A step that was launched for a sequence that was older then, and that has left or finished since,
//! says nothing about the next one in line.

use std::collections::VecDeque;

use crate::request::SequenceId;

/// How often the oldest sequence was passed over in a row.
#[derive(Debug, Default)]
pub(super) struct Starvation {
    /// For each step in flight, the oldest sequence when it was launched.
    launched: VecDeque<Option<SequenceId>>,
    oldest: Option<SequenceId>,
    steps: u64,
}

impl Starvation {
    /// A step is launched while `oldest` is the oldest sequence.
    pub(super) fn launch(&mut self, oldest: Option<SequenceId>) {
        self.launched.push_back(oldest);
    }

    /// The oldest step in flight is done while `oldest` is the oldest sequence; `sequences` are in it. By how many
    /// steps in a row it was passed over.
    pub(super) fn finish(&mut self, oldest: Option<SequenceId>, sequences: &[SequenceId]) -> u64 {
        let at_launch = self.launched.pop_front().flatten();
        let advanced = oldest.is_none_or(|oldest| sequences.contains(&oldest));
        if advanced || oldest != self.oldest {
            self.steps = 0;
        } else if at_launch == oldest {
            self.steps += 1;
        }
        self.oldest = oldest;
        self.steps
    }

    /// Starts to count anew, at the next step.
    pub(super) fn reset(&mut self) {
        self.steps = 0;
    }

    /// All steps in flight are gone.
    pub(super) fn crash(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u64) -> SequenceId {
        SequenceId(number)
    }

    #[test]
    fn a_sequence_that_is_in_no_step_is_counted() {
        let mut starvation = Starvation::default();
        let steps = (0..4).map(|_| {
            starvation.launch(Some(id(1)));
            starvation.finish(Some(id(1)), &[id(2)])
        });
        assert_eq!(steps.collect::<Vec<_>>(), [0, 1, 2, 3]);
        starvation.launch(Some(id(1)));
        assert_eq!(starvation.finish(Some(id(1)), &[id(1)]), 0);
    }

    /// What happened in the adversarial world of seed 226874: sequences 6 and 8, of an older batch, were cancelled while
    /// two steps each were in flight for them. Sequence 10 was the oldest when each of the four was done, and for none of
    /// them when it was launched.
    #[test]
    fn steps_launched_for_older_sequences_that_left_do_not_count() {
        let mut starvation = Starvation::default();
        let mut passed_over = Vec::new();
        for older in [id(6), id(8)] {
            starvation.launch(Some(older));
            starvation.launch(Some(older));
            passed_over.extend([(); 2].map(|()| starvation.finish(Some(id(10)), &[older])));
        }
        assert_eq!(passed_over, [0; 4]);
    }
}
