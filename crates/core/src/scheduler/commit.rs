//! Accounts for the outcome of a step.

use super::{InFlightSequence, InFlightStep, Scheduler};
use crate::sequence::Phase;
use crate::{
    AcceptedTokens, Event, Failure, FinishReason, Outcome, SequenceId, SequenceOutput, StopKind, Token,
};

impl Scheduler {
    /// Accounts for the outcome of the oldest plan in flight, and returns the events for clients.
    ///
    /// Panics if it is not the oldest, or if the number of rows is wrong: both are bugs in the engine, and continuing
    /// would expose one client's memory to another.
    pub fn commit(&mut self, outcome: Outcome) -> Vec<Event> {
        let flight = self.steps.pop_front();
        let oldest = flight.as_ref().map(|flight| flight.id);
        assert_eq!(oldest, Some(outcome.plan), "the oldest plan in flight is committed first");
        let Some(InFlightStep { load, times, works, .. }) = flight else { return Vec::new() };
        let ended = self.clock.land(times, outcome.took);
        if let Some(took) = outcome.took {
            self.cost.learn(&load, took);
        }
        let asked = works.iter().filter(|work| work.samples > 0).count();
        assert_eq!(asked, outcome.outputs.len(), "one output for each sequence that samples");
        self.version.0 += 1;
        let mut events = Vec::new();
        let mut outputs = outcome.outputs.into_iter();
        for work in &works {
            let output = if work.samples > 0 { outputs.next() } else { None };
            self.settle(work, output, &mut events);
            if let Some(sequence) = self.sequences.get_mut(&work.sequence).filter(|_| work.samples > 0) {
                sequence.token_at = ended;
            }
        }
        self.recovery.succeeded(works.iter().map(|work| work.sequence));
        events
    }

    /// Accounts for one sequence's part of the step.
    fn settle(&mut self, work: &InFlightSequence, output: Option<SequenceOutput>, events: &mut Vec<Event>) {
        let id = work.sequence;
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let tokens_in_flight = sequence.in_flight.pop_front();
        assert!(tokens_in_flight.is_some(), "a step in flight is recorded with its sequences");
        let (phase, in_flight) = (sequence.phase, sequence.is_in_flight());
        if phase == Phase::Ended {
            // Samples after the end are dropped.
            if !in_flight {
                if output != Some(SequenceOutput::Failed) {
                    self.cache_tail(id);
                }
                self.remove(id);
            }
            return;
        }
        let (tokens, stop) = match output {
            Some(SequenceOutput::Accepted { tokens, stop }) => (tokens, stop),
            None => (AcceptedTokens::new(), None),
            Some(SequenceOutput::Failed) => {
                let failure = Failure::Sampling;
                events.extend(self.end(id, Event::Failed { sequence: id, failure }));
                return;
            }
        };
        let accepted = tokens.len();
        assert!(
            accepted.min(1) == work.samples.min(1) && accepted <= work.samples,
            "as many as were sampled"
        );
        self.roll_back(work, accepted);
        let finish = self.append(id, &tokens, stop, events);
        self.cache_blocks(id, work.end - (work.samples - accepted));
        match finish {
            Some(reason) => self.finish(id, reason, events),
            None => self.make_way(id, phase, in_flight),
        }
    }

    /// Releases blocks of positions after the last accepted token.
    fn roll_back(&mut self, work: &InFlightSequence, accepted: usize) {
        if work.samples < 2 {
            return;
        }
        if let Some(sequence) = self.sequences.get_mut(&work.sequence) {
            sequence.computed += accepted - 1;
            self.kv_cache.truncate(&mut sequence.cache.tables, sequence.computed, accepted);
            self.totals.accepted_draft_tokens_total += accepted as u64 - 1;
        }
    }

    /// Caches the full blocks among the first `end` positions. Their tokens are known and accepted.
    fn cache_blocks(&mut self, id: SequenceId, end: usize) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let full = end / self.settings.block_size;
        if self.kv_cache.shares() && full > sequence.cache.cached_blocks {
            let blocks = sequence.cache.cached_blocks..full;
            self.kv_cache.cache_block(
                &sequence.cache.tables,
                &sequence.cache.hashes,
                &sequence.tokens,
                blocks,
            );
            sequence.cache.cached_blocks = full;
        }
    }

    /// Caches all blocks of a finished sequence, including the last, partial one.
    fn cache_tail(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(&id).filter(|sequence| sequence.is_complete) else {
            return;
        };
        if !self.kv_cache.shares() {
            return;
        }
        let known = &sequence.tokens[..sequence.computed.min(sequence.tokens.len())];
        let full = known.len() / self.settings.block_size;
        if full > sequence.cache.cached_blocks {
            self.kv_cache.cache_block(
                &sequence.cache.tables,
                &sequence.cache.hashes,
                known,
                sequence.cache.cached_blocks..full,
            );
        }
        self.kv_cache.cache_partial_block(&sequence.cache.tables, &sequence.cache.hashes, known);
    }

    /// Adds tokens. Returns the finish reason, if they were the last.
    fn append(
        &mut self,
        id: SequenceId,
        tokens: &[Token],
        stop: Option<StopKind>,
        events: &mut Vec<Event>,
    ) -> Option<FinishReason> {
        let sequence = self.sequences.get_mut(&id).filter(|_| !tokens.is_empty())?;
        sequence.tokens.extend_from_slice(tokens);
        if self.kv_cache.shares() {
            sequence.cache.hashes.extend(&sequence.tokens);
        }
        self.totals.sampled_tokens_total += tokens.len() as u64;
        events.extend(tokens.iter().map(|token| Event::Token { sequence: id, token: *token }));
        assert!(sequence.tokens.len() <= sequence.max_tokens, "no more is sampled than the request's limit");
        let full = sequence.tokens.len() == sequence.max_tokens;
        stop.map(FinishReason::Stop).or(full.then_some(FinishReason::Length))
    }

    /// Ends a sequence that has come to its last token.
    fn finish(&mut self, id: SequenceId, reason: FinishReason, events: &mut Vec<Event>) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        self.answer_lengths.ended(sequence.tokens.len() - sequence.prompt);
        sequence.is_complete = true;
        if !sequence.is_in_flight() {
            self.cache_tail(id);
        }
        events.extend(self.end(id, Event::Finished { sequence: id, reason }));
    }

    /// Releases the blocks that the sequence no longer needs after this step.
    fn make_way(&mut self, id: SequenceId, phase: Phase, in_flight: bool) {
        if phase == Phase::Preempted {
            if !in_flight {
                self.wait(id);
            }
        } else if let Some(sequence) = self.sequences.get_mut(&id) {
            let next = sequence.next_start();
            self.kv_cache.free_out_of_window(&mut sequence.cache.tables, next);
        }
    }
}
