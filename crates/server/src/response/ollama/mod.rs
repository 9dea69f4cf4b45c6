//! Ollama's format: one JSON object a line, the last of which has the counters.

mod error;
mod timings;

use jiff::Timestamp;
use omnibus_engine::{CallEnding, Delta, Event as EngineEvent, FinishReason, TokenInfo, Usage};
use serde_json::{Map, Value};

pub use error::error_body;
use timings::Timings;

use crate::error::ApiError;
use crate::response::openai::{Logprobs, logprobs};
use crate::response::{Completion, Event, Framer, Frames, JsonBody, ToolCall};
use crate::wire::chat::ShownReasoning;
use crate::wire::generation::TokenNames;
use crate::wire::json;
use crate::wire::logprobs::ChatLogprob;
use crate::wire::ollama::response::{Call, Called, Line, Message};

/// Which of the two answers it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// With a `message`.
    Chat,
    /// With a `response`.
    Generate,
}

/// Frames answers.
#[derive(Debug)]
pub struct OllamaFramer {
    model: String,
    shape: Shape,
    reasoning: ShownReasoning,
    logprobs: Logprobs,
    timings: Timings,
    /// The call that is being generated.
    call: Option<ToolCall>,
    /// Complete calls so far.
    calls: usize,
    reason: FinishReason,
    /// The tokens of prompt and answer so far, where they are returned.
    context: Option<Vec<u32>>,
}

/// The parts of a message.
#[derive(Debug, Default)]
struct Parts {
    text: String,
    thinking: Option<String>,
    calls: Vec<Call>,
}

impl OllamaFramer {
    /// The framer of one answer of the model, as the request named it.
    pub fn new(model: String, shape: Shape) -> Self {
        Self {
            model,
            shape,
            reasoning: ShownReasoning::Include,
            logprobs: Logprobs::Omit,
            timings: Timings::start(),
            call: None,
            calls: 0,
            reason: FinishReason::Stop,
            context: None,
        }
    }

    /// This framer, for answers with or without reasoning.
    pub fn with_reasoning(self, reasoning: ShownReasoning) -> Self {
        Self { reasoning, ..self }
    }

    /// This framer, for answers with or without log-probabilities.
    pub fn with_logprobs(self, logprobs: Logprobs) -> Self {
        Self { logprobs, ..self }
    }

    /// This framer, which returns the tokens of this prompt and the answer's.
    pub fn with_context(self, prompt: Option<Vec<u32>>) -> Self {
        Self { context: prompt, ..self }
    }

    /// The answer to a request that only loads or unloads its model.
    pub fn loaded(self, done_reason: &'static str) -> JsonBody {
        let line = self.line(Parts::default(), None);
        JsonBody::of(&Line { done: true, done_reason: Some(done_reason), ..line })
    }

    fn line(&self, parts: Parts, logprobs: Option<Vec<ChatLogprob>>) -> Line {
        let Parts { text, thinking, calls } = parts;
        let tool_calls = (!calls.is_empty()).then_some(calls);
        let line = Line {
            model: self.model.clone(),
            created_at: Timestamp::now().to_string(),
            logprobs,
            ..Line::default()
        };
        match self.shape {
            Shape::Chat => {
                Line { message: Some(Message { thinking, tool_calls, ..Message::new(text) }), ..line }
            }
            Shape::Generate => Line { response: Some(text), thinking, ..line },
        }
    }

    /// The last line, or the whole answer.
    fn last(&mut self, parts: Parts, logprobs: Option<Vec<ChatLogprob>>, usage: Usage) -> Line {
        Line {
            done: true,
            done_reason: Some(done_reason(self.reason)),
            context: self.context.take(),
            counters: Some(self.timings.counters(usage)),
            ..self.line(parts, logprobs)
        }
    }

    fn logprobs(&self, tokens: Vec<TokenInfo>) -> Option<Vec<ChatLogprob>> {
        let has_any = self.logprobs == Logprobs::Include && !tokens.is_empty();
        has_any.then(|| logprobs::chat(tokens, TokenNames::Texts).content)
    }

    fn delta(&mut self, delta: Delta) -> Option<Parts> {
        match delta {
            Delta::Text(text) => (!text.is_empty()).then(|| Parts { text, ..Parts::default() }),
            Delta::Reasoning(text) => {
                let is_shown = self.reasoning == ShownReasoning::Include && !text.is_empty();
                is_shown.then(|| Parts { thinking: Some(text), ..Parts::default() })
            }
            Delta::ToolCallStart { id, name } => {
                self.call = Some(ToolCall { id, name, arguments: String::new(), ending: CallEnding::Cut });
                None
            }
            Delta::ToolCallArguments(more) => {
                if let Some(call) = &mut self.call {
                    call.arguments.push_str(&more);
                }
                None
            }
            Delta::ToolCallEnd(ending) => {
                let call = self.call.take()?;
                self.complete(&ToolCall { ending, ..call })
            }
        }
    }

    /// A complete call. One that was cut is left out: its arguments would have to be guessed.
    fn complete(&mut self, call: &ToolCall) -> Option<Parts> {
        let call = call_of(call, self.calls)?;
        self.calls += 1;
        Some(Parts { calls: vec![call], ..Parts::default() })
    }
}

fn call_of(call: &ToolCall, index: usize) -> Option<Call> {
    let arguments = match json::parse(call.arguments.as_bytes()) {
        Ok(Value::Object(arguments)) => arguments,
        Ok(_) | Err(_) if call.arguments.trim().is_empty() => Map::new(),
        Ok(_) | Err(_) => return None,
    };
    let function = Called { index, name: call.name.clone(), arguments };
    (call.ending == CallEnding::Complete).then(|| Call { id: call.id.clone(), function })
}

/// A message that ends with calls has no reason of its own.
fn done_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::Length => "length",
    }
}

impl Framer for OllamaFramer {
    type Body = JsonBody;

    fn start(&mut self, _frames: &mut Frames) {}

    fn observe(&mut self, event: &Event) {
        self.timings.observe(event);
        match event {
            Event::Engine(EngineEvent::Delta { tokens, .. }) => {
                if let Some(context) = &mut self.context {
                    context.extend(tokens.iter().map(|token| token.id));
                }
            }
            Event::Engine(EngineEvent::Finished { reason, .. }) => self.reason = *reason,
            Event::Engine(_) | Event::Speech(_) | Event::Tool(_) | Event::Failed(_) => {}
        }
    }

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        self.observe(&event);
        let Event::Engine(EngineEvent::Delta { delta, tokens }) = event else { return };
        let (parts, logprobs) = (self.delta(delta), self.logprobs(tokens));
        if parts.is_some() || logprobs.is_some() {
            frames.data(&self.line(parts.unwrap_or_default(), logprobs));
        }
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        let line = self.last(Parts::default(), None, usage);
        frames.data(&line);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error::object(error));
    }

    fn full(mut self, completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let completion = completions.into_iter().next().unwrap_or_default();
        let complete = completion.tool_calls().filter(|call| call.ending == CallEnding::Complete);
        let parts = Parts {
            text: completion.text(),
            thinking: completion.reasoning().filter(|_| self.reasoning == ShownReasoning::Include),
            calls: complete.enumerate().filter_map(|(index, call)| call_of(call, index)).collect(),
        };
        let logprobs = self.logprobs(completion.tokens);
        JsonBody::of(&self.last(parts, logprobs, usage))
    }
}
