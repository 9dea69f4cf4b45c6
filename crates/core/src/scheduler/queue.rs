//! The queue's limits, one for each class of service, and the expected waiting time when it is full.
//!
//! Invariant: no tenant can shut out the others, and no class the other. One with less than its share of the queue may wait even when the queue
//! is full, in a quarter more places that are reserved for this. Nothing here looks at each waiting sequence.

use super::sequences::Sequences;
use super::waiting::WaitingQueue;
use crate::cost::{CostModel, StepLoad};
use crate::request::{Class, Rejection, Tick};
use crate::settings::Settings;

/// The weight of the newest output in the usual length.
const ANSWER_GAIN: f64 = 0.05;
/// The usual length of an output before any measurement, in tokens.
const ANSWER_GUESS: f64 = 128.0;

/// The queue's limits, and how long outputs usually are.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimit {
    /// Most waiting sequences of each class.
    max_queue: [usize; Class::COUNT],
    /// The usual length of outputs, in tokens.
    answer_tokens: f64,
}

impl QueueLimit {
    /// Before any output.
    pub(super) fn new(settings: &Settings) -> Self {
        Self { max_queue: [settings.max_queue, settings.max_offline_queue], answer_tokens: ANSWER_GUESS }
    }

    /// An output ended after `tokens`.
    pub(super) fn answer_ended(&mut self, tokens: usize) {
        self.answer_tokens += ANSWER_GAIN * (tokens as f64 - self.answer_tokens);
    }

    /// Fails when the queue of this class is full for this tenant.
    pub(super) fn check(
        &self,
        waiting: &WaitingQueue,
        (class, tenant): (Class, u64),
    ) -> Result<(), Rejection> {
        let (queued, limit) = (waiting.count(class), self.max_queue[class as usize]);
        let (others, own) = waiting.share(class, tenant);
        let tenants = others + usize::from(own == 0);
        let has_share_left = tenants > 1 && own * tenants < limit;
        if queued < limit || (queued < limit + limit.div_ceil(4) && has_share_left) {
            return Ok(());
        }
        Err(Rejection::QueueFull { queued, limit })
    }

    /// Expected microseconds until half of the waiting online sequences have been served: prefill of their prompts and
    /// decode of outputs of the usual length, beside the running ones. Zero if none waits.
    pub(super) fn retry_after(&self, sequences: &Sequences, settings: &Settings, cost: &CostModel) -> Tick {
        let waiting = sequences.waiting().count(Class::Online);
        if waiting == 0 {
            return 0;
        }
        let (load, usual) = (sequences.waiting().online_load(), self.answer_tokens);
        let (mut prefill, mut answers, mut tokens) = (load.prefill(), load.answers(usual), load.tokens());
        let running = || sequences.running().filter(|sequence| sequence.class() == Class::Online);
        for sequence in running() {
            let unread = sequence.tokens.len().saturating_sub(sequence.computed);
            prefill = prefill.plus(StepLoad::prefill(sequence.computed, unread));
            let most = sequence.goal.max_new_tokens() as f64;
            answers += (usual.min(most) - sequence.answered() as f64).max(most.min(1.0));
            tokens += sequence.tokens.len() as u64;
        }
        let count = (waiting + running().count()) as f64;
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
