//! The framer of `POST /v1/chat/completions`.

use std::time::Instant;

use omnibus_engine::{Event as EngineEvent, FinishReason, TokenInfo, Usage};

use super::chat_calls::{self, Calls};
use super::chat_mcp_calls::McpCalls;
use super::{FINGERPRINT, Include, Logprobs, done, failed, finish_reason, logprobs};
use crate::error::ApiError;
use crate::lower::Choices;
use crate::response::{Completion, Event, Framer, Frames, JsonBody, ResponseHeader, TimedChoice};
use crate::wire::chat::{
    ChatChunk, ChatCompletion, Choice, ChunkChoice, Delta, ResponseMessage, ShownReasoning, ToolCallDelta,
};
use crate::wire::generation::StreamUsage;
use crate::wire::logprobs::ChatLogprobs;
use crate::wire::tools::{CallForms, CallShape};

/// Frames chat completions.
#[derive(Debug)]
pub struct ChatFramer {
    header: ResponseHeader,
    include: Include,
    reasoning: ShownReasoning,
    forms: CallForms,
    /// The ids of the prompt's tokens until they are sent, when requested.
    prompt_token_ids: Option<Vec<u32>>,
    choices: Vec<ChoiceState>,
}

#[derive(Debug, Default)]
struct ChoiceState {
    calls: Calls,
    mcp_calls: McpCalls,
    /// So far.
    usage: Usage,
    timed: TimedChoice,
}

impl ChatFramer {
    /// The framer of one response.
    pub fn new(header: ResponseHeader, choices: Choices, include: Include) -> Self {
        let choices = std::iter::repeat_with(ChoiceState::default).take(choices.count).collect();
        let (reasoning, forms) = (ShownReasoning::default(), CallForms::default());
        Self { header, include, reasoning, forms, prompt_token_ids: None, choices }
    }

    /// This framer, which returns calls so.
    pub fn with_forms(self, forms: CallForms) -> Self {
        Self { forms, ..self }
    }

    /// This framer, for answers with or without reasoning.
    pub fn with_reasoning(self, reasoning: ShownReasoning) -> Self {
        Self { reasoning, ..self }
    }

    /// This framer, which sends the ids of the prompt's tokens.
    pub fn with_prompt(self, prompt_token_ids: Option<Vec<u32>>) -> Self {
        Self { prompt_token_ids, ..self }
    }

    fn chunk(&mut self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> ChatChunk {
        let choice = choices.first().and_then(|choice| self.choices.get(choice.index));
        let so_far = choice.map(|choice| choice.usage).unwrap_or_default();
        let timings = choice.and_then(|choice| self.include.timings(&choice.timed));
        ChatChunk {
            id: self.header.id.clone(),
            object: "chat.completion.chunk",
            created: self.header.created,
            model: self.header.model.clone(),
            choices,
            usage: self.include.usage_field(usage, so_far),
            system_fingerprint: FINGERPRINT,
            prompt_token_ids: self.prompt_token_ids.take(),
            timings,
            prompt_progress: None,
        }
    }

    /// A chunk that says how much of the prompt of a choice is computed, when that was requested.
    fn progress(&mut self, index: usize, event: &Event, now: Instant) -> Option<ChatChunk> {
        let timed = self.choices.get(index)?.timed;
        let prompt_progress = self.include.progress(&timed, event, now)?;
        let choice = empty_choice(index, Delta::default());
        Some(ChatChunk { prompt_progress: Some(prompt_progress), ..self.chunk(vec![choice], None) })
    }

    fn logprobs(&self, tokens: Vec<TokenInfo>) -> Option<ChatLogprobs> {
        let names = self.include.tokens.names;
        (self.include.logprobs == Logprobs::Include).then(|| logprobs::chat(tokens, names))
    }

    fn delta(
        &mut self,
        index: usize,
        delta: omnibus_engine::Delta,
        tokens: Vec<TokenInfo>,
    ) -> Option<ChunkChoice> {
        let state = self.choices.get_mut(index)?;
        state.usage.completion_tokens += tokens.len();
        let (is_empty, delta) = match delta {
            omnibus_engine::Delta::Text(text) => {
                (text.is_empty(), Delta { content: Some(text), ..Delta::default() })
            }
            omnibus_engine::Delta::Reasoning(_) if self.reasoning == ShownReasoning::Omit => {
                (true, Delta::default())
            }
            omnibus_engine::Delta::Reasoning(text) => {
                let reasoning = Some(text.clone());
                (text.is_empty(), Delta { reasoning_content: Some(text), reasoning, ..Delta::default() })
            }
            omnibus_engine::Delta::ToolCallStart { id, name } => {
                (false, state.calls.start(id, name, &self.forms))
            }
            omnibus_engine::Delta::ToolCallArguments(json) => {
                let delta = state.calls.arguments(json, &self.forms);
                (delta.is_none(), delta.unwrap_or_default())
            }
            omnibus_engine::Delta::ToolCallEnd(_) => {
                let delta = state.calls.end();
                (delta.is_none(), delta.unwrap_or_default())
            }
        };
        if is_empty && !self.include.shows(&tokens) {
            return None;
        }
        let token_ids = self.include.token_ids(&tokens);
        let logprobs = self.logprobs(tokens);
        Some(ChunkChoice { index, delta, logprobs, finish_reason: None, tool_loop_stop: None, token_ids })
    }

    fn finish_reason(&self, index: usize, reason: FinishReason) -> &'static str {
        let calls = self.choices.get(index).map_or(0, |choice| choice.calls.started());
        reason_with_calls(reason, calls, self.forms.shape)
    }
}

/// A choice of a chunk with a delta alone.
fn empty_choice(index: usize, delta: Delta) -> ChunkChoice {
    ChunkChoice { index, delta, logprobs: None, finish_reason: None, tool_loop_stop: None, token_ids: None }
}

/// A completion that stopped after tool calls has a finish reason of its own.
fn reason_with_calls(reason: FinishReason, calls: usize, shape: CallShape) -> &'static str {
    match (reason, shape) {
        (FinishReason::Stop, CallShape::Tools) if calls > 0 => "tool_calls",
        (FinishReason::Stop, CallShape::Function) if calls > 0 => "function_call",
        (other, _) => finish_reason(other),
    }
}

impl ChatFramer {
    /// The content is null when there are only tool calls.
    fn message(&self, completion: &Completion) -> ResponseMessage {
        let mut calls: Vec<ToolCallDelta> =
            completion.tool_calls().map(|call| chat_calls::whole(call, &self.forms)).collect();
        let text = completion.text();
        let reasoning = completion.reasoning().filter(|_| self.reasoning == ShownReasoning::Include);
        let content = (!text.is_empty() || calls.is_empty()).then_some(text);
        let function_call = match self.forms.shape {
            CallShape::Tools => None,
            CallShape::Function => calls.drain(..).next().and_then(|call| call.function),
        };
        let mcp_calls = McpCalls::whole(completion).0;
        ResponseMessage {
            role: "assistant",
            content,
            reasoning_content: reasoning.clone(),
            reasoning,
            tool_calls: (!calls.is_empty()).then_some(calls),
            function_call,
            mcp_calls: (!mcp_calls.is_empty()).then_some(mcp_calls),
            refusal: None,
        }
    }
}

impl Framer for ChatFramer {
    type Body = JsonBody;

    fn start(&mut self, frames: &mut Frames) {
        for index in 0..self.choices.len() {
            let delta = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
            let choice = empty_choice(index, delta);
            frames.data(&self.chunk(vec![choice], None));
        }
    }

    fn event(&mut self, index: usize, event: Event, frames: &mut Frames) {
        let now = Instant::now();
        if let Some(choice) = self.choices.get_mut(index) {
            choice.timed.add(&event, now);
        }
        if let Some(chunk) = self.progress(index, &event, now) {
            frames.data(&chunk);
        }
        let choice = match event {
            Event::Engine(EngineEvent::Delta { delta, tokens }) => self.delta(index, delta, tokens),
            Event::Engine(EngineEvent::Finished { reason, .. }) => Some(ChunkChoice {
                finish_reason: Some(self.finish_reason(index, reason)),
                tool_loop_stop: self.choices.get(index).and_then(|choice| choice.mcp_calls.stop()),
                ..empty_choice(index, Delta::default())
            }),
            Event::Tool(event) => {
                let calls = self.choices.get_mut(index).and_then(|choice| choice.mcp_calls.event(event));
                calls.map(|call| {
                    empty_choice(index, Delta { mcp_calls: Some(vec![call]), ..Delta::default() })
                })
            }
            Event::Engine(EngineEvent::Started { prompt_tokens, cached_tokens }) => {
                if let Some(choice) = self.choices.get_mut(index) {
                    choice.usage = Usage { prompt_tokens, cached_tokens, ..choice.usage };
                }
                None
            }
            Event::Engine(
                EngineEvent::Prompt(_)
                | EngineEvent::Alignment(_)
                | EngineEvent::Hidden(_)
                | EngineEvent::TokenLogits(_)
                | EngineEvent::Progress { .. }
                | EngineEvent::Failed(_),
            )
            | Event::Speech(_)
            | Event::Failed(_) => None,
        };
        if let Some(choice) = choice {
            frames.data(&self.chunk(vec![choice], None));
        }
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        if self.include.usage != StreamUsage::Omit {
            frames.data(&self.chunk(Vec::new(), Some(usage)));
        }
        done(frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        failed(error, frames);
    }

    fn full(mut self, mut completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let prompt_token_ids = self.prompt_token_ids.take();
        let prompt = completions.first_mut().map(|first| std::mem::take(&mut first.prompt_tokens));
        let prompt_logprobs = self.include.prompt_logprobs(prompt.unwrap_or_default());
        let timings = completions.first().and_then(|first| self.include.timings(&first.timed));
        let choice = |(index, completion): (usize, Completion)| {
            let reason = completion.finish_reason.unwrap_or(FinishReason::Cancelled);
            Choice {
                index,
                finish_reason: reason_with_calls(reason, completion.tool_calls().count(), self.forms.shape),
                tool_loop_stop: McpCalls::whole(&completion).1,
                message: self.message(&completion),
                token_ids: self.include.token_ids(&completion.tokens),
                logprobs: self.logprobs(completion.tokens),
            }
        };
        JsonBody::of(&ChatCompletion {
            id: self.header.id.clone(),
            object: "chat.completion",
            created: self.header.created,
            model: self.header.model.clone(),
            choices: completions.into_iter().enumerate().map(choice).collect(),
            usage: self.include.usage_of(usage),
            system_fingerprint: FINGERPRINT,
            prompt_token_ids,
            prompt_logprobs,
            timings,
            kv_transfer_params: self.include.kv_transfer.params(&self.header.id),
        })
    }
}
