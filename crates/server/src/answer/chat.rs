//! Answers to conversations.

use omnibus_engine::{Event, FinishReason, TokenInfo};

use super::{Answer, Collected, FINGERPRINT, ResponseHeader, finish_reason, logprobs};
use crate::wire::chat::{ChatChunk, ChatCompletion, Choice, ChunkChoice, Delta, ResponseMessage};
use crate::wire::generation::StreamUsage;
use crate::wire::logprobs::ChatLogprobs;
use crate::wire::usage::Usage;

/// A conversation's next message. The text is the model's, raw: calls of tools are not taken out
/// of it here but on its way here, once there is somebody who can.
#[derive(Debug)]
pub struct ChatAnswer {
    /// What all parts repeat.
    pub header: ResponseHeader,
    /// Whether chunks have a place for the usage.
    pub usage: StreamUsage,
    /// Whether log-probabilities were asked for.
    pub logprobs: Logprobs,
}

/// Whether log-probabilities were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logprobs {
    /// They were.
    Show,
    /// Tokens stay inside.
    Hide,
}

impl ChatAnswer {
    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> ChatChunk {
        ChatChunk {
            id: self.header.id.clone(),
            object: "chat.completion.chunk",
            created: self.header.created,
            model: self.header.model.clone(),
            choices,
            usage: (self.usage == StreamUsage::Include).then_some(usage),
            system_fingerprint: FINGERPRINT,
        }
    }

    fn one(&self, index: usize, delta: Delta) -> ChunkChoice {
        ChunkChoice { index, delta, logprobs: None, finish_reason: None }
    }

    fn shown(&self, tokens: Vec<TokenInfo>) -> Option<ChatLogprobs> {
        (self.logprobs == Logprobs::Show).then(|| logprobs::chat(tokens))
    }

    fn delta(&self, index: usize, text: String, tokens: Vec<TokenInfo>) -> Option<ChatChunk> {
        let silent = tokens.is_empty() || self.logprobs == Logprobs::Hide;
        if text.is_empty() && silent {
            return None;
        }
        let delta = Delta { content: Some(text), role: None };
        let choice = ChunkChoice { logprobs: self.shown(tokens), ..self.one(index, delta) };
        Some(self.chunk(vec![choice], None))
    }

    fn finished(&self, index: usize, reason: FinishReason) -> ChatChunk {
        let finish_reason = Some(finish_reason(reason));
        self.chunk(vec![ChunkChoice { finish_reason, ..self.one(index, Delta::default()) }], None)
    }
}

impl Answer for ChatAnswer {
    type Chunk = ChatChunk;
    type Whole = ChatCompletion;

    fn opening(&mut self, choice: usize) -> Option<ChatChunk> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
        Some(self.chunk(vec![self.one(choice, delta)], None))
    }

    fn more(&mut self, choice: usize, event: Event) -> Option<ChatChunk> {
        match event {
            Event::Delta { text, tokens } => self.delta(choice, text, tokens),
            Event::Finished { reason, .. } => Some(self.finished(choice, reason)),
            Event::Started { .. } | Event::Prompt(_) | Event::Failed(_) => None,
        }
    }

    fn closing(&mut self, usage: Usage) -> ChatChunk {
        self.chunk(Vec::new(), Some(usage))
    }

    fn whole(self, collected: Vec<Collected>, usage: Usage) -> ChatCompletion {
        let choice = |(index, collected): (usize, Collected)| Choice {
            index,
            message: ResponseMessage { role: "assistant", content: collected.text, refusal: None },
            logprobs: self.shown(collected.tokens),
            finish_reason: finish_reason(collected.reason.unwrap_or(FinishReason::Cancelled)),
        };
        ChatCompletion {
            id: self.header.id.clone(),
            object: "chat.completion",
            created: self.header.created,
            model: self.header.model.clone(),
            choices: collected.into_iter().enumerate().map(choice).collect(),
            usage,
            system_fingerprint: FINGERPRINT,
        }
    }
}
