//! The queue's limit, and the expected waiting time when it is full.
//!
//! Invariant: no tenant can shut out the others. One with less than its share of the queue may wait even when the queue
//! is full, in a quarter more places that are reserved for this.

use super::Scheduler;
use crate::{Rejection, StepLoad, Tick};

/// The weight of the newest output in the usual length.
const ANSWER_GAIN: f64 = 0.05;
/// The usual length of an output before any measurement, in tokens.
const ANSWER_GUESS: f64 = 128.0;

/// The usual length of outputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLengths {
    tokens: f64,
}

impl Default for AnswerLengths {
    fn default() -> Self {
        Self { tokens: ANSWER_GUESS }
    }
}

impl AnswerLengths {
    /// An output ended after `tokens`.
    pub(super) fn ended(&mut self, tokens: usize) {
        self.tokens += ANSWER_GAIN * (tokens as f64 - self.tokens);
    }
}

impl Scheduler {
    /// Fails when the queue is full for this tenant.
    pub(super) fn find_room(&self, tenant: u64) -> Result<(), Rejection> {
        let (queued, limit) = (self.waiting.len(), self.settings.max_queue);
        if queued < limit || (queued < limit + limit.div_ceil(4) && self.has_less_than_its_share(tenant)) {
            return Ok(());
        }
        Err(Rejection::QueueFull { queued, limit })
    }

    fn has_less_than_its_share(&self, tenant: u64) -> bool {
        let (others, own) = self.waiting.share(tenant);
        let tenants = others + usize::from(own == 0);
        tenants > 1 && own * tenants < self.settings.max_queue
    }

    /// Expected microseconds until half of the waiting sequences have been served: prefill of their prompts and decode
    /// of outputs of the usual length, beside the running ones. Zero for an empty queue.
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
            let usual = self.answer_lengths.tokens.min(most as f64);
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
