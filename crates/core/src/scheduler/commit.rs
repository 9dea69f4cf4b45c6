//! Accounts for the outcome of a step.

use super::in_flight::InFlightSequence;
use super::{Scheduler, fair};
use crate::event::{Event, Failure, FinishReason};
use crate::outcome::{AcceptedTokens, Outcome, SequenceOutput, Stop};
use crate::request::{Goal, SequenceId, Token};
use crate::sequence::{Phase, Sequence};

impl Scheduler {
    /// Accounts for the outcome of the oldest plan in flight, and returns the events for clients.
    ///
    /// Panics if it is not the oldest, or if the number of rows is wrong: both are bugs in the engine, and continuing
    /// would expose one client's memory to another.
    pub fn commit(&mut self, outcome: Outcome) -> Vec<Event> {
        let Some((step, ended)) = self.steps.finish(outcome.plan, outcome.took) else { return Vec::new() };
        if let Some(took) = outcome.took {
            self.cost.learn(&step.load, took);
            if let Some(online_us) = step.online_us {
                self.policy.spare_us = fair::spare_after(self.policy.spare_us, took as f64, online_us);
            }
        }
        let samplers = step.sequences.iter().filter(|of| of.samples > 0).count();
        assert_eq!(samplers, outcome.outputs.len(), "one output for each sequence that samples");
        self.version.0 += 1;
        let mut events = Vec::with_capacity(samplers);
        let mut outputs = outcome.outputs.into_iter();
        for part in &step.sequences {
            let output = if part.samples > 0 { outputs.next() } else { None };
            self.commit_sequence(part, output, &mut events);
            if let Some(sequence) = self.sequences.get_mut(part.id).filter(|_| part.samples > 0) {
                sequence.token_at = ended;
            }
        }
        self.recovery.succeeded(step.sequences.iter().map(|part| part.id));
        events
    }

    /// Accounts for one sequence's part of the step.
    fn commit_sequence(
        &mut self,
        part: &InFlightSequence,
        output: Option<SequenceOutput>,
        events: &mut Vec<Event>,
    ) {
        let id = part.id;
        let Some(sequence) = self.sequences.get_mut(id) else { return };
        let in_flight = sequence.in_flight.pop_front();
        assert!(in_flight.is_some(), "a step in flight is recorded with its sequences");
        let is_superseded = in_flight.is_some_and(|step| step.is_superseded);
        if sequence.phase == Phase::Ended {
            self.drop_outputs(id, output);
            self.release_unneeded(id);
            return;
        }
        let (tokens, stop) = match output {
            Some(SequenceOutput::Accepted { tokens, stop }) => (tokens, stop),
            None | Some(SequenceOutput::Superseded) => (AcceptedTokens::new(), Stop::No),
            Some(SequenceOutput::Failed) => {
                let failure = Failure::Sampling;
                events.extend(self.end(id, Event::Failed { sequence: id, failure }));
                self.release_unneeded(id);
                return;
            }
        };
        let accepted = tokens.len();
        let samples = if is_superseded { 0 } else { part.samples };
        let is_possible = accepted.min(1) == samples.min(1) && accepted <= samples;
        assert!(is_possible, "as many as were sampled");
        self.roll_back(part, accepted);
        let finish = self.append(id, &tokens, stop, events).or_else(|| self.computed_all(id, part));
        if let Some(Sequence { cache, tokens, .. }) = self.sequences.get_mut(id) {
            // The tokens of these positions are known and accepted.
            self.kv_cache.cache_full_blocks(cache, &tokens[..part.end - (samples - accepted)]);
        }
        if let Some(reason) = finish {
            self.finish(id, reason, events);
        }
        self.release_unneeded(id);
    }

    /// Appends tokens that follow a sequence's last one whatever the model computes, and are computed with it like a
    /// prompt's. `stop`: whether the sequence ends with the last of them. The sample of a step in flight is
    /// [`SequenceOutput::Superseded`]. At least one token below the sequence's limit is left to sample, unless it stops.
    /// Nothing happens to a sequence that has ended or is not there.
    ///
    /// Panics if a step in flight verifies draft tokens of the sequence.
    pub fn force(&mut self, id: SequenceId, tokens: &[Token], stop: Stop) -> Vec<Event> {
        let mut events = Vec::with_capacity(tokens.len() + 1);
        let live = self.sequences.get_mut(id).filter(|sequence| sequence.phase != Phase::Ended);
        let Some(sequence) = live.filter(|_| !tokens.is_empty()) else { return events };
        assert!(!sequence.awaits_verification(), "no draft tokens are in flight beside forced ones");
        let is_room = sequence.tokens.len() + tokens.len() < sequence.max_tokens;
        assert!(is_room || stop == Stop::Yes, "a token is left to sample");
        sequence.in_flight.iter_mut().for_each(|step| step.is_superseded = true);
        self.version.0 += 1;
        self.totals.forced_tokens_total += tokens.len() as u64;
        self.sequences.leave_queue(id);
        let finish = self.append(id, tokens, stop, &mut events);
        self.sequences.rejoin_queue(id);
        if let Some(reason) = finish {
            self.finish(id, reason, &mut events);
        }
        events
    }

    /// Samples after the end of a sequence are dropped, and the sequence is removed after the last of them.
    fn drop_outputs(&mut self, id: SequenceId, output: Option<SequenceOutput>) {
        let Some(sequence) = self.sequences.get(id).filter(|sequence| !sequence.is_in_flight()) else {
            return;
        };
        if sequence.is_complete && output != Some(SequenceOutput::Failed) {
            self.cache_tail(id);
        }
        self.remove(id);
    }

    /// Releases blocks of positions after the last accepted token.
    fn roll_back(&mut self, part: &InFlightSequence, accepted: usize) {
        if part.samples < 2 {
            return;
        }
        if let Some(sequence) = self.sequences.get_mut(part.id) {
            sequence.computed += accepted - 1;
            self.drafting.learn(&mut sequence.drafts, part.samples - 1, accepted - 1);
            self.kv_cache.truncate(&mut sequence.cache.tables, sequence.computed, accepted);
            self.totals.count_draft(part.samples - 1, accepted - 1);
        }
    }

    /// Caches all blocks of a finished sequence, including the last, partial one.
    fn cache_tail(&mut self, id: SequenceId) {
        if let Some(Sequence { cache, tokens, computed, .. }) = self.sequences.get_mut(id) {
            self.kv_cache.cache_tail(cache, &tokens[..tokens.len().min(*computed)]);
        }
    }

    /// Adds tokens. Returns the finish reason, if they were the last.
    fn append(
        &mut self,
        id: SequenceId,
        tokens: &[Token],
        stop: Stop,
        events: &mut Vec<Event>,
    ) -> Option<FinishReason> {
        let sequence = self.sequences.get_mut(id).filter(|_| !tokens.is_empty())?;
        sequence.tokens.extend_from_slice(tokens);
        if self.kv_cache.shares() {
            sequence.cache.hashes.extend(&sequence.tokens);
        }
        self.totals.generated_tokens_total += tokens.len() as u64;
        events.extend(tokens.iter().map(|token| Event::Token { sequence: id, token: *token }));
        assert!(sequence.tokens.len() <= sequence.max_tokens, "no more is sampled than the request's limit");
        let is_full = sequence.tokens.len() == sequence.max_tokens;
        match stop {
            Stop::Yes => Some(FinishReason::Stop),
            Stop::No => is_full.then_some(FinishReason::Length),
        }
    }

    /// The finish reason of a sequence that generates nothing, if this was its last position.
    fn computed_all(&self, id: SequenceId, part: &InFlightSequence) -> Option<FinishReason> {
        let sequence = self.sequences.get(id).filter(|sequence| sequence.goal == Goal::Compute)?;
        (part.end == sequence.max_computed).then_some(FinishReason::Computed)
    }

    /// Ends a sequence that has come to its last token.
    fn finish(&mut self, id: SequenceId, reason: FinishReason, events: &mut Vec<Event>) {
        let Some(sequence) = self.sequences.get_mut(id) else { return };
        if sequence.goal != Goal::Compute {
            self.queue.answer_ended(sequence.tokens.len() - sequence.prompt);
        }
        sequence.is_complete = true;
        if !sequence.is_in_flight() {
            self.cache_tail(id);
        }
        events.extend(self.end(id, Event::Finished { sequence: id, reason }));
    }

    /// Releases the blocks that the sequence no longer needs after this step: all, if it is preempted. One that has ended
    /// and is in a further step frees those out of its window like any other; plans count on them.
    fn release_unneeded(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id) else { return };
        if sequence.phase != Phase::Preempted {
            let next = sequence.next_start();
            self.kv_cache.free_out_of_window(&mut sequence.cache.tables, next);
        } else if !sequence.is_in_flight() {
            self.wait(id);
        }
    }
}
