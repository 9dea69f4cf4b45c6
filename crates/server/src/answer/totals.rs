//! Adds up what the choices of an answer cost.

use super::Choices;
use crate::wire::usage::{PromptTokensDetails, Usage};

/// The usage so far, and how many choices still run.
#[derive(Debug)]
pub struct Totals {
    choices: Choices,
    open: usize,
    usage: Usage,
}

impl Totals {
    /// Before anything ended.
    pub fn new(choices: Choices) -> Self {
        Self { choices, open: choices.count, usage: Usage::default() }
    }

    /// A choice ended. A prompt counts once, however many answers it has.
    pub fn add(&mut self, choice: usize, cost: omnibus_engine::Usage) {
        assert!(self.open > 0, "a choice ends once");
        self.open -= 1;
        if choice.is_multiple_of(self.choices.per_prompt) {
            self.usage.prompt_tokens += cost.prompt_tokens;
            let cached_tokens = self.usage.prompt_tokens_details.cached_tokens + cost.cached_tokens;
            self.usage.prompt_tokens_details = PromptTokensDetails { cached_tokens };
        }
        self.usage.completion_tokens += cost.completion_tokens;
        self.usage.total_tokens = self.usage.prompt_tokens + self.usage.completion_tokens;
    }

    /// Whether every choice ended.
    pub fn complete(&self) -> bool {
        self.open == 0
    }

    /// What those that ended cost.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
