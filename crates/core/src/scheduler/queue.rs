//! The queue's limit, and the expected waiting time when it is full.
//!
//! Invariant: no tenant can shut out the others. One with less than its share of the queue may wait even when the queue
//! is full, in a quarter more places that are reserved for this. Nothing here looks at each waiting sequence.

use super::sequences::Sequences;
use super::waiting::WaitingQueue;
use crate::{CostModel, Rejection, Settings, StepLoad, Tick};

/// The weight of the newest output in the usual length.
const ANSWER_GAIN: f64 = 0.05;
/// The usual length of an output before any measurement, in tokens.
const ANSWER_GUESS: f64 = 128.0;

/// The queue's limit, and how long outputs usually are.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimit {
    /// Most waiting sequences.
    max_queue: usize,
    /// The usual length of outputs, in tokens.
    answer_tokens: f64,
}

impl QueueLimit {
    /// Before any output.
    pub(super) fn new(settings: &Settings) -> Self {
        Self { max_queue: settings.max_queue, answer_tokens: ANSWER_GUESS }
    }

    /// An output ended after `tokens`.
    pub(super) fn answer_ended(&mut self, tokens: usize) {
        self.answer_tokens += ANSWER_GAIN * (tokens as f64 - self.answer_tokens);
    }

    /// Fails when the queue is full for this tenant.
    pub(super) fn check(&self, waiting: &WaitingQueue, tenant: u64) -> Result<(), Rejection> {
        let (queued, limit) = (waiting.len(), self.max_queue);
        if queued < limit || (queued < limit + limit.div_ceil(4) && self.has_share_left(waiting, tenant)) {
            return Ok(());
        }
        Err(Rejection::QueueFull { queued, limit })
    }

    /// True for a tenant with less than its share of the queue.
    fn has_share_left(&self, waiting: &WaitingQueue, tenant: u64) -> bool {
        let (others, own) = waiting.share(tenant);
        let tenants = others + usize::from(own == 0);
        tenants > 1 && own * tenants < self.max_queue
    }

    /// Expected microseconds until half of the waiting sequences have been served: prefill of their prompts and decode
    /// of outputs of the usual length, beside the running ones. Zero for an empty queue.
    pub(super) fn retry_after(&self, sequences: &Sequences, settings: &Settings, cost: &CostModel) -> Tick {
        let waiting = sequences.waiting();
        if waiting.is_empty() {
            return 0;
        }
        let (load, usual) = (waiting.load(), self.answer_tokens);
        let (mut prefill, mut answers, mut tokens) = (load.prefill(), load.answers(usual), load.tokens());
        for sequence in sequences.running() {
            let unread = sequence.tokens.len().saturating_sub(sequence.computed);
            prefill = prefill.plus(StepLoad::prefill(sequence.computed, unread));
            let most = sequence.goal.max_new_tokens() as f64;
            answers += (usual.min(most) - sequence.answered() as f64).max(most.min(1.0));
            tokens += sequence.tokens.len() as u64;
        }
        let count = (waiting.len() + sequences.running_count()) as f64;
        let abreast = count.min(settings.max_sequences as f64);
        let step = StepLoad {
            decode_tokens: abreast,
            decode_context: tokens as f64 / count * abreast,
            ..StepLoad::default()
        };
        let chunks = (prefill.prefill_tokens / settings.max_step_tokens as f64).ceil();
        let prefill_us = cost.predict(&prefill) + (chunks - 1.0).max(0.0) * cost.prefill.base_us;
        let decode_us = answers / abreast * cost.predict(&step);
        ((prefill_us + decode_us) / 2.0) as Tick
    }
}
