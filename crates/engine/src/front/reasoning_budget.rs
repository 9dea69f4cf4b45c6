//! A limit on reasoning: when it is spent, the request goes on as a new job whose prompt ends with the closing marker.
//!
//! Invariant: the new job has the sampling and the positions of the old one, so the answer is the one that the model would
//! have given if it had written the marker itself.

use crate::message::{Job, JobId};

/// A request's limit on reasoning, and how it goes on when it is spent.
#[derive(Debug, Clone)]
pub(crate) struct ReasoningBudget {
    /// Most tokens of reasoning.
    pub(super) tokens: usize,
    /// The tokens that end reasoning.
    pub(super) closing: Vec<u32>,
    /// The job of the request, with the id of its continuation.
    next: Job,
}

impl ReasoningBudget {
    pub(super) fn new(tokens: usize, closing: Vec<u32>, next: JobId, job: &Job) -> Self {
        Self { tokens, closing, next: Job { id: next, ..job.clone() } }
    }

    /// The id of the continuation.
    pub(super) fn next_id(&self) -> JobId {
        self.next.id
    }

    /// Takes a generated token.
    pub(super) fn push(&mut self, token: u32) {
        self.next.request.prompt.push(token);
        self.next.request.goal = self.next.request.goal.after(1);
    }

    /// The job that goes on after the closing marker. `None` if there is no room for an answer.
    pub(super) fn continuation(mut self) -> Option<Job> {
        for token in std::mem::take(&mut self.closing) {
            self.push(token);
        }
        (self.next.request.goal.max_new_tokens() > 0).then_some(self.next)
    }
}
