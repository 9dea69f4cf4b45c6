//! Enters what came of a step into the books.

use super::{Flight, FlightWork, Scheduler};
use crate::sequence::Phase;
use crate::{Event, Failure, FinishReason, Outcome, SequenceId, SequenceOutput, StopKind, Token};

impl Scheduler {
    /// Enters what came of the oldest plan in flight, and says what to tell the clients.
    ///
    /// Panics if it is not the oldest, or if the rows are not as many as it asked for: both are bugs in the
    /// engine, and going on would hand one client's memory to another.
    pub fn commit(&mut self, outcome: Outcome) -> Vec<Event> {
        let flight = self.flights.pop_front();
        let oldest = flight.as_ref().map(|flight| flight.id);
        assert_eq!(oldest, Some(outcome.plan), "the oldest plan in flight is committed first");
        let Some(Flight { load, times, works, .. }) = flight else { return Vec::new() };
        let ended = self.clock.land(times, outcome.took);
        if let Some(took) = outcome.took {
            self.cost.learn(&load, took);
        }
        let asked = works.iter().filter(|work| work.sample).count();
        assert_eq!(asked, outcome.outputs.len(), "one row for each sample asked for");
        self.now_at.0 += 1;
        let mut events = Vec::new();
        let mut outputs = outcome.outputs.into_iter();
        for work in &works {
            let row = if work.sample { outputs.next() } else { None };
            self.settle(work, row, &mut events);
            if let Some(sequence) = self.sequences.get_mut(&work.sequence).filter(|_| work.sample) {
                sequence.token_at = ended;
            }
        }
        self.recovery.succeeded(works.iter().map(|work| work.sequence));
        events
    }

    /// Takes in one sequence's share of the step.
    fn settle(&mut self, work: &FlightWork, row: Option<SequenceOutput>, events: &mut Vec<Event>) {
        let id = work.sequence;
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let booking = sequence.bookings.pop_front();
        assert!(booking.is_some(), "a step in flight is booked with its sequences");
        let (phase, in_flight) = (sequence.phase, sequence.is_in_flight());
        if phase == Phase::Ended {
            // Whatever was sampled after the end is nobody's.
            if !in_flight {
                if row != Some(SequenceOutput::Failed) {
                    self.keep_tail(id);
                }
                self.remove(id);
            }
            return;
        }
        if row == Some(SequenceOutput::Failed) {
            let failure = Failure::Sampling;
            events.extend(self.end(id, Event::Failed { sequence: id, failure }));
            return;
        }
        self.seal(work);
        let ended = match row {
            Some(SequenceOutput::Sampled { token, stop }) => self.append(id, token, stop, events),
            Some(SequenceOutput::Failed) | None => false,
        };
        if !ended {
            self.make_way(id, phase, in_flight);
        }
    }

    /// Makes the blocks findable that this work filled.
    fn seal(&mut self, work: &FlightWork) {
        let Some(sequence) = self.sequences.get_mut(&work.sequence) else { return };
        let full = work.end / self.settings.block_size;
        if self.memory.shares() && full > sequence.sealed {
            let blocks = sequence.sealed..full;
            self.memory.seal(&sequence.tables, &sequence.chain, &sequence.tokens, blocks);
            sequence.sealed = full;
        }
    }

    /// Makes everything findable that a sequence leaves behind which has come to its end, for whoever goes on from
    /// there.
    fn keep_tail(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(&id).filter(|sequence| sequence.is_complete) else {
            return;
        };
        if !self.memory.shares() {
            return;
        }
        let known = &sequence.tokens[..sequence.computed.min(sequence.tokens.len())];
        let full = known.len() / self.settings.block_size;
        if full > sequence.sealed {
            self.memory.seal(&sequence.tables, &sequence.chain, known, sequence.sealed..full);
        }
        self.memory.seal_tail(&sequence.tables, &sequence.chain, known);
    }

    /// Adds a token. True if it was the last.
    fn append(
        &mut self,
        id: SequenceId,
        token: Token,
        stop: Option<StopKind>,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(sequence) = self.sequences.get_mut(&id) else { return true };
        sequence.tokens.push(token);
        if self.memory.shares() {
            sequence.chain.extend(&sequence.tokens);
        }
        let full = sequence.tokens.len() == sequence.max_tokens;
        let answer = sequence.tokens.len() - sequence.prompt;
        self.totals.sampled_tokens_total += 1;
        events.push(Event::Token { sequence: id, token });
        let reason = match stop {
            Some(kind) => FinishReason::Stop(kind),
            None if full => FinishReason::Length,
            None => return false,
        };
        self.answers.ended(answer);
        sequence.is_complete = true;
        if !sequence.is_in_flight() {
            self.keep_tail(id);
        }
        events.extend(self.end(id, Event::Finished { sequence: id, reason }));
        true
    }

    /// Releases what the sequence needs no more, now that this step is done with it.
    fn make_way(&mut self, id: SequenceId, phase: Phase, in_flight: bool) {
        if phase == Phase::Preempted {
            if !in_flight {
                self.wait(id);
            }
        } else if let Some(sequence) = self.sequences.get_mut(&id) {
            let next = sequence.next_start();
            self.memory.slide(&mut sequence.tables, next);
        }
    }
}
