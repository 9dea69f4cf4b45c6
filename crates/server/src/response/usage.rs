//! Sums the usage of all choices.

use omnibus_engine::{EncoderUsage, EnergyUsage, Usage};

use crate::lower::Choices;

/// The usage so far, and how many choices still run.
#[derive(Debug)]
pub struct UsageTotals {
    choices: Choices,
    running: usize,
    usage: Usage,
}

impl UsageTotals {
    /// The totals before any choice has finished.
    pub fn new(choices: Choices) -> Self {
        Self { choices, running: choices.count, usage: Usage::default() }
    }

    /// Adds a finished choice. A prompt counts once, whatever the number of its choices.
    pub fn add(&mut self, choice: usize, usage: Usage) {
        assert!(self.running > 0, "a choice finishes once");
        self.running -= 1;
        let is_first = choice.is_multiple_of(self.choices.per_prompt);
        if is_first {
            self.usage.prompt_tokens += usage.prompt_tokens;
            self.usage.cached_tokens += usage.cached_tokens;
        }
        let once = |of: EncoderUsage| EncoderUsage { tokens: if is_first { of.tokens } else { 0 }, ..of };
        self.usage.media.images += once(usage.media.images);
        self.usage.media.audio += once(usage.media.audio);
        self.usage.completion_tokens += usage.completion_tokens;
        self.usage.reasoning_tokens += usage.reasoning_tokens;
        self.usage.drafts += usage.drafts;
        self.usage.energy = EnergyUsage::sum(self.usage.energy, usage.energy);
    }

    /// The usage of all choices, once every choice has finished.
    pub fn complete(&self) -> Option<Usage> {
        (self.running == 0).then_some(self.usage)
    }
}
