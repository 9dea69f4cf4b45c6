//! Continuations of prompts.

use omnibus_engine::{Event, FinishReason, TokenInfo};

use super::chat::Logprobs;
use super::logprobs::Offsets;
use super::{Answer, Choices, Collected, FINGERPRINT, ResponseHeader, finish_reason};
use crate::wire::completions::{Choice, Completion};
use crate::wire::generation::StreamUsage;
use crate::wire::logprobs::TextLogprobs;
use crate::wire::usage::Usage;

/// Texts that go on where prompts end.
#[derive(Debug)]
pub struct TextAnswer {
    header: ResponseHeader,
    usage: StreamUsage,
    logprobs: Logprobs,
    /// What comes before each choice's text; empty unless it is echoed.
    echoes: Vec<String>,
    /// Where each choice's next token begins.
    offsets: Vec<Offsets>,
}

/// What a request wants to see.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Whether chunks have a place for the usage.
    pub usage: StreamUsage,
    /// Whether log-probabilities were asked for.
    pub logprobs: Logprobs,
    /// The text of each prompt, when it is to be echoed.
    pub echoes: Option<Vec<String>>,
}

impl TextAnswer {
    /// An answer of which nothing is known yet.
    pub fn new(header: ResponseHeader, choices: Choices, shown: Shown) -> Self {
        let prompts = shown.echoes.unwrap_or_else(|| vec![String::new(); choices.count / choices.per_prompt]);
        let echoes: Vec<String> =
            prompts.into_iter().flat_map(|echo| vec![echo; choices.per_prompt]).collect();
        assert_eq!(echoes.len(), choices.count, "every choice has a prompt");
        let offsets = vec![Offsets::default(); choices.count];
        Self { header, usage: shown.usage, logprobs: shown.logprobs, echoes, offsets }
    }

    fn completion(&self, choices: Vec<Choice>, usage: Option<Option<Usage>>) -> Completion {
        Completion {
            id: self.header.id.clone(),
            object: "text_completion",
            created: self.header.created,
            model: self.header.model.clone(),
            choices,
            usage,
            system_fingerprint: FINGERPRINT,
        }
    }

    fn chunk(&self, choices: Vec<Choice>, usage: Option<Usage>) -> Completion {
        self.completion(choices, (self.usage == StreamUsage::Include).then_some(usage))
    }

    fn shown(&mut self, choice: usize, tokens: Vec<TokenInfo>) -> Option<TextLogprobs> {
        (self.logprobs == Logprobs::Show).then(|| self.offsets[choice].text(tokens))
    }

    /// The echo comes with whatever comes first, where it did not come at once.
    fn delta(&mut self, index: usize, text: String, tokens: Vec<TokenInfo>) -> Option<Completion> {
        let text = std::mem::take(&mut self.echoes[index]) + &text;
        let silent = tokens.is_empty() || self.logprobs == Logprobs::Hide;
        if text.is_empty() && silent {
            return None;
        }
        let logprobs = self.shown(index, tokens);
        Some(self.chunk(vec![Choice { index, text, logprobs, finish_reason: None }], None))
    }

    fn finished(&mut self, index: usize, reason: FinishReason) -> Completion {
        let text = std::mem::take(&mut self.echoes[index]);
        let finish_reason = Some(finish_reason(reason));
        self.chunk(vec![Choice { index, text, logprobs: None, finish_reason }], None)
    }

    fn choice(&mut self, index: usize, collected: Collected) -> Choice {
        let Collected { text, tokens, prompt, reason } = collected;
        let text = format!("{}{text}", self.echoes[index]);
        let logprobs = self.shown(index, prompt.into_iter().chain(tokens).collect());
        let reason = finish_reason(reason.unwrap_or(FinishReason::Cancelled));
        Choice { index, text, logprobs, finish_reason: Some(reason) }
    }
}

impl Answer for TextAnswer {
    type Chunk = Completion;
    type Whole = Completion;

    /// The echo, unless it waits for its log-probabilities.
    fn opening(&mut self, choice: usize) -> Option<Completion> {
        match self.logprobs {
            Logprobs::Show => None,
            Logprobs::Hide => self.delta(choice, String::new(), Vec::new()),
        }
    }

    fn more(&mut self, choice: usize, event: Event) -> Option<Completion> {
        match event {
            Event::Prompt(tokens) => self.delta(choice, String::new(), tokens),
            Event::Delta { text, tokens } => self.delta(choice, text, tokens),
            Event::Finished { reason, .. } => Some(self.finished(choice, reason)),
            Event::Started { .. } | Event::Failed(_) => None,
        }
    }

    fn closing(&mut self, usage: Usage) -> Completion {
        self.chunk(Vec::new(), Some(usage))
    }

    fn whole(mut self, collected: Vec<Collected>, usage: Usage) -> Completion {
        let choices = collected
            .into_iter()
            .enumerate()
            .map(|(index, collected)| self.choice(index, collected))
            .collect();
        self.completion(choices, Some(Some(usage)))
    }
}
