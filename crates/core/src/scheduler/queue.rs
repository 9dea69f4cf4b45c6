//! Who may wait, and how long it will be until there is room for more.
//!
//! Invariant: no tenant can keep the others out. One that has less than its share of the queue may wait even when the queue
//! is full, in a quarter more of places that are kept for such.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::{Rejection, StepLoad, Tick};

/// What the newest answer counts in the usual length of one.
const ANSWER_GAIN: f64 = 0.05;
/// The usual length of an answer before there was one, in tokens.
const ANSWER_GUESS: f64 = 128.0;

/// How long answers usually are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    tokens: f64,
}

impl Default for Answers {
    fn default() -> Self {
        Self { tokens: ANSWER_GUESS }
    }
}

impl Answers {
    /// An answer came to its end after so many tokens.
    pub(super) fn ended(&mut self, tokens: usize) {
        self.tokens += ANSWER_GAIN * (tokens as f64 - self.tokens);
    }
}

impl Scheduler {
    /// Fails when there is no room for one more of this tenant.
    pub(super) fn find_room(&self, tenant: u64) -> Result<(), Rejection> {
        let (queued, limit) = (self.waiting.len(), self.settings.max_queue);
        if queued < limit || (queued < limit + limit.div_ceil(4) && self.has_less_than_its_share(tenant)) {
            return Ok(());
        }
        Err(Rejection::QueueFull { queued, limit })
    }

    fn has_less_than_its_share(&self, tenant: u64) -> bool {
        let waiting = || self.waiting.iter().map(|id| self.sequences[id].tenant);
        let tenants: BTreeSet<u64> = waiting().chain([tenant]).collect();
        let own = waiting().filter(|other| *other == tenant).count();
        tenants.len() > 1 && own * tenants.len() < self.settings.max_queue
    }

    /// Microseconds until half of those that wait have been served, as far as that can be told: their prompts read and
    /// answers of the usual length decoded, beside those that run. Zero while nobody waits.
    pub fn retry_after(&self) -> Tick {
        if self.waiting.is_empty() {
            return 0;
        }
        let places = self.settings.max_sequences as f64;
        let (mut reading, mut answers, mut context) = (StepLoad::default(), 0.0, 0.0);
        let live = self.waiting.iter().chain(&self.running);
        for sequence in live.map(|id| &self.sequences[id]) {
            let unread = sequence.tokens.len().saturating_sub(sequence.computed);
            reading = reading.plus(StepLoad::prefill(sequence.computed, unread));
            let most = sequence.max_tokens - sequence.prompt;
            let usual = self.answers.tokens.min(most as f64);
            answers += (usual - (sequence.tokens.len() - sequence.prompt) as f64).max(1.0);
            context += sequence.tokens.len() as f64;
        }
        let count = (self.waiting.len() + self.running.len()) as f64;
        let abreast = count.min(places);
        let step = StepLoad {
            decode_tokens: abreast,
            decode_context: context / count * abreast,
            ..StepLoad::default()
        };
        let chunks = (reading.prefill_tokens / self.settings.max_step_tokens as f64).ceil();
        let read = self.cost.predict(&reading) + (chunks - 1.0).max(0.0) * self.cost.prefill.base_us;
        let decoded = answers / abreast * self.cost.predict(&step);
        ((read + decoded) / 2.0) as Tick
    }
}
