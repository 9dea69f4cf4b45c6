//! The format of the Responses API: items, events with sequence numbers, and the response at the end.

mod compaction;
mod events;
mod items;
mod mcp_items;
mod recorder;
mod search_items;
mod shown;

use std::time::{SystemTime, UNIX_EPOCH};

use omnibus_engine::{Delta, Event as EngineEvent, FinishReason, Usage};
use omnibus_mcp::StopReason;
use serde_json::Value;

pub use compaction::CompactionFramer;
pub use recorder::{ConversationExtension, Place, Recorder};
pub use shown::Shown;

use crate::error::{ApiError, ErrorKind};
use crate::lower::responses::Toolbox;
use crate::response::{Completion, CompletionPart, Event, Framer, Frames, JsonBody, ToolCall, ToolEvent};
use crate::wire::energy::ShownEnergy;
use crate::wire::responses::Generation;
use crate::wire::responses::response::{
    ErrorObject, EventData, IncompleteDetails, InputDetails, OutputDetails, ResponseObject,
    Usage as WireUsage,
};
use events::Events;
use items::{ItemStatus, Items};

/// Frames responses.
pub struct ResponsesFramer {
    response: ResponseObject,
    items: Items,
    events: Events,
    shown: Shown,
    /// The limit that left calls of the last generation without results.
    stopped: Option<StopReason>,
    /// Keeps the response.
    recorder: Recorder,
}

impl ResponsesFramer {
    /// The framer of one response. `response` has no output yet.
    pub fn new(response: ResponseObject, toolbox: Toolbox, shown: Shown, recorder: Recorder) -> Self {
        let items = Items::new(&response.id, toolbox, shown);
        Self { response, items, events: Events::default(), shown, stopped: None, recorder }
    }

    fn record(&self) {
        self.recorder.record(&self.response);
    }

    fn send_response(&mut self, kind: &'static str, frames: &mut Frames) {
        let response = Box::new(self.response.clone());
        self.events.push(kind, EventData::Response { response }, frames);
    }

    fn end(&mut self, reason: FinishReason) {
        // A warm-up ends after the one token that makes the engine compute its prompt.
        let reason = match (self.shown.generation, reason) {
            (Generation::Warmup, FinishReason::Length) => FinishReason::Stop,
            (_, reason) => reason,
        };
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if let Some(limit) = self.stopped {
            let details = IncompleteDetails { reason: limit.name() };
            (self.response.status, self.response.incomplete_details) = ("incomplete", Some(details));
            return;
        }
        self.response.completed_at = (reason == FinishReason::Stop).then(now);
        (self.response.status, self.response.incomplete_details) = match reason {
            FinishReason::Stop => ("completed", None),
            FinishReason::Length => ("incomplete", Some(IncompleteDetails { reason: "max_output_tokens" })),
            FinishReason::Cancelled => ("cancelled", None),
        };
    }

    fn tool(&mut self, event: ToolEvent, frames: &mut Frames) {
        if let ToolEvent::Stopped(reason) = event {
            self.stopped = Some(reason);
        }
        self.items.tool(event, &mut self.events, frames);
    }

    fn set_failed(&mut self, error: &ApiError) {
        self.response.status = "failed";
        let message = error.message().to_owned();
        self.response.error = Some(ErrorObject { code: code(error), message });
        self.record();
    }
}

/// The codes that clients act on.
fn code(error: &ApiError) -> &'static str {
    match error.kind() {
        ErrorKind::RateLimited => "rate_limit_exceeded",
        ErrorKind::Unavailable => "server_is_overloaded",
        ErrorKind::InvalidRequest => error.code(),
        _ => "server_error",
    }
}

fn usage_of(usage: Usage, energy: ShownEnergy) -> WireUsage {
    WireUsage {
        input_tokens: usage.prompt_tokens,
        input_tokens_details: InputDetails { cached_tokens: usage.cached_tokens, cache_write_tokens: 0 },
        output_tokens: usage.completion_tokens,
        output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning_tokens },
        total_tokens: usage.prompt_tokens + usage.completion_tokens,
        energy: energy.of(&usage),
    }
}

impl Framer for ResponsesFramer {
    type Body = JsonBody;

    fn submitted(&mut self) {
        self.record();
    }

    fn start(&mut self, frames: &mut Frames) {
        self.response.status = "in_progress";
        self.record();
        self.send_response("response.created", frames);
        self.send_response("response.in_progress", frames);
    }

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        match event {
            Event::Engine(EngineEvent::Delta { .. }) if self.shown.generation == Generation::Warmup => {}
            Event::Engine(EngineEvent::Delta { delta, tokens }) => {
                self.items.delta(delta, tokens, &mut self.events, frames)
            }
            Event::Engine(EngineEvent::Finished { reason, .. }) => {
                let status = ItemStatus::at_end(reason);
                self.items.close(status, &mut self.events, frames);
                self.end(reason);
            }
            Event::Tool(event) => self.tool(event, frames),
            Event::Engine(
                EngineEvent::Started { .. }
                | EngineEvent::Prompt(_)
                | EngineEvent::Alignment(_)
                | EngineEvent::Hidden(_)
                | EngineEvent::TokenLogits(_)
                | EngineEvent::Progress { .. }
                | EngineEvent::Failed(_),
            )
            | Event::Speech(_)
            | Event::Failed(_) => {}
        }
    }

    /// Clients reset their idle clock at events only, not at comments.
    fn keep_alive(&mut self, frames: &mut Frames) {
        self.send_response("response.in_progress", frames);
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        self.response.output = self.items.take();
        self.response.usage = Some(usage_of(usage, self.shown.energy));
        self.record();
        let kind =
            if self.response.status == "completed" { "response.completed" } else { "response.incomplete" };
        self.send_response(kind, frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        self.set_failed(error);
        self.send_response("response.failed", frames);
    }

    fn accepted(&mut self) -> JsonBody {
        self.response.status = "queued";
        self.record();
        JsonBody::of(&self.response)
    }

    fn full(mut self, completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let completion = completions.into_iter().next().unwrap_or_default();
        let reason = completion.finish_reason.unwrap_or(FinishReason::Cancelled);
        // The items are those of the stream, whose frames are dropped.
        let mut dropped = Frames::default();
        let tokens = completion.part_tokens.into_iter().chain(std::iter::repeat_with(Vec::new));
        let parts = match self.shown.generation {
            Generation::Full => completion.parts,
            Generation::Warmup => Vec::new(),
        };
        for (part, mut tokens) in parts.into_iter().zip(tokens) {
            let part = match part {
                CompletionPart::Tool(event) => {
                    self.tool(event, &mut dropped);
                    continue;
                }
                part => part,
            };
            for delta in deltas(part) {
                self.items.delta(delta, std::mem::take(&mut tokens), &mut self.events, &mut dropped);
            }
        }
        self.items.close(ItemStatus::at_end(reason), &mut self.events, &mut dropped);
        self.end(reason);
        self.response.output = self.items.take();
        self.response.usage = Some(usage_of(usage, self.shown.energy));
        self.record();
        JsonBody::of(&self.response)
    }
}

/// The deltas of a part.
fn deltas(part: CompletionPart) -> Vec<Delta> {
    match part {
        CompletionPart::Text(text) => vec![Delta::Text(text)],
        CompletionPart::Reasoning(text) => vec![Delta::Reasoning(text)],
        CompletionPart::ToolCall(ToolCall { id, name, arguments, ending }) => vec![
            Delta::ToolCallStart { id, name },
            Delta::ToolCallArguments(arguments),
            Delta::ToolCallEnd(ending),
        ],
        CompletionPart::Tool(_) => Vec::new(),
    }
}

/// An item as it is kept.
fn kept(item: &impl serde::Serialize) -> Value {
    serde_json::to_value(item).unwrap_or_default()
}
