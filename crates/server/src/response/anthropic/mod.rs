//! Anthropic's format: named events, content blocks one after the other, and its error object.

mod error;
mod limits;
mod mcp_blocks;
mod search_blocks;

use omnibus_engine::{CallEnding, Delta, Event as EngineEvent, FinishReason, StopMatch, Usage};
use serde_json::Value;

pub use error::error_body;
pub use limits::headers as limit_headers;

use crate::error::ApiError;
use crate::lower::opaque;
use crate::request_id::RequestId;
use crate::response::{
    Completion, CompletionPart, Event, Framer, Frames, JsonBody, ResponseHeader, ToolCall, ToolEvent,
};
use crate::wire::anthropic::Display;
use crate::wire::anthropic::response::{self as wire, Block, BlockDelta, StopDelta, StreamEvent};
use crate::wire::energy::ShownEnergy;

/// Frames messages.
#[derive(Debug)]
pub struct MessagesFramer {
    header: ResponseHeader,
    request_id: RequestId,
    display: Display,
    energy: ShownEnergy,
    index: usize,
    open: Option<OpenBlock>,
    /// Whether `message_start` was sent.
    has_started: bool,
    stop: StopDelta,
    pause: Pause,
    /// How many searches of the web were made.
    searches: usize,
}

/// Whether a limit left calls of the last generation without results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    No,
    AtLimit,
}

/// The block that is streamed.
#[derive(Debug, PartialEq, Eq)]
enum OpenBlock {
    Text,
    /// Its text so far, where the signature holds it.
    Thinking(String),
    ToolUse,
}

impl MessagesFramer {
    /// The framer of one response.
    pub fn new(header: ResponseHeader, request_id: RequestId, display: Display, energy: ShownEnergy) -> Self {
        let stop = StopDelta { stop_reason: "end_turn", stop_sequence: None };
        let pause = Pause::No;
        Self {
            header,
            request_id,
            display,
            energy,
            index: 0,
            open: None,
            has_started: false,
            stop,
            pause,
            searches: 0,
        }
    }

    fn message(&self, content: Vec<Block>, stop: Option<StopDelta>, usage: Usage) -> wire::Message {
        let (stop_reason, stop_sequence) = match stop {
            Some(stop) => (Some(stop.stop_reason), stop.stop_sequence),
            None => (None, None),
        };
        wire::Message {
            id: self.header.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.header.model.clone(),
            content,
            stop_reason,
            stop_sequence,
            usage: self.usage_of(usage),
        }
    }

    fn delta(&mut self, delta: Delta, frames: &mut Frames) {
        match delta {
            Delta::Text(text) if text.is_empty() => {}
            Delta::Text(text) => {
                if self.open != Some(OpenBlock::Text) {
                    self.open(OpenBlock::Text, Block::Text { text: String::new() }, frames);
                }
                self.block_delta(BlockDelta::TextDelta { text }, frames);
            }
            Delta::Reasoning(thinking) => self.thinking(thinking, frames),
            Delta::ToolCallStart { id, name } => {
                self.stop.stop_reason = "tool_use";
                let input = Value::Object(serde_json::Map::new());
                self.open(OpenBlock::ToolUse, Block::ToolUse { id, name, input }, frames);
            }
            Delta::ToolCallArguments(partial_json) => {
                self.block_delta(BlockDelta::InputJsonDelta { partial_json }, frames);
            }
            Delta::ToolCallEnd(_) => self.close(frames),
        }
    }

    fn thinking(&mut self, thinking: String, frames: &mut Frames) {
        if !matches!(self.open, Some(OpenBlock::Thinking(_))) {
            let block = Block::Thinking { thinking: String::new(), signature: String::new() };
            self.open(OpenBlock::Thinking(String::new()), block, frames);
        }
        if let Some(OpenBlock::Thinking(text)) = &mut self.open {
            text.push_str(&thinking);
        }
        if self.display == Display::Text {
            self.block_delta(BlockDelta::ThinkingDelta { thinking }, frames);
        }
    }

    fn open(&mut self, open: OpenBlock, content_block: Block, frames: &mut Frames) {
        self.close(frames);
        self.open = Some(open);
        push(StreamEvent::ContentBlockStart { index: self.index, content_block }, frames);
    }

    fn block_delta(&self, delta: BlockDelta, frames: &mut Frames) {
        push(StreamEvent::ContentBlockDelta { index: self.index, delta }, frames);
    }

    fn close(&mut self, frames: &mut Frames) {
        let Some(open) = self.open.take() else { return };
        if let OpenBlock::Thinking(text) = open {
            self.block_delta(BlockDelta::SignatureDelta { signature: opaque::encode(&text) }, frames);
        }
        push(StreamEvent::ContentBlockStop { index: self.index }, frames);
        self.index += 1;
    }

    /// An event of a tool that the server runs. Those of one generation come one after the other, then their results.
    fn tool(&mut self, event: ToolEvent, frames: &mut Frames) {
        match event {
            ToolEvent::Started(call) => self.open(OpenBlock::ToolUse, mcp_blocks::call(call), frames),
            ToolEvent::Arguments { json: partial_json, .. } => {
                self.block_delta(BlockDelta::InputJsonDelta { partial_json }, frames);
            }
            ToolEvent::Called { .. } => self.close(frames),
            ToolEvent::Ended { id, outcome } => {
                self.open(OpenBlock::ToolUse, mcp_blocks::result(id, outcome), frames);
                self.close(frames);
            }
            ToolEvent::SearchStarted { id, query } => {
                let block = search_blocks::call(&id, serde_json::Map::new());
                self.open(OpenBlock::ToolUse, block, frames);
                let partial_json = Value::Object(search_blocks::input(query)).to_string();
                self.block_delta(BlockDelta::InputJsonDelta { partial_json }, frames);
                self.close(frames);
            }
            ToolEvent::SearchEnded { id, found } => {
                self.searches += usize::from(search_blocks::is_made(&found));
                self.open(OpenBlock::ToolUse, search_blocks::result(&id, found), frames);
                self.close(frames);
            }
            ToolEvent::Stopped(_) => self.pause = Pause::AtLimit,
            ToolEvent::Listed(_) | ToolEvent::NeedsApproval { .. } | ToolEvent::Limited(_) => {}
        }
    }

    fn usage_of(&self, usage: Usage) -> wire::Usage {
        let searches = wire::ServerToolUse { web_search_requests: self.searches };
        wire::Usage {
            input_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.cached_tokens,
            output_tokens: usage.completion_tokens,
            server_tool_use: (self.searches > 0).then_some(searches),
            energy: self.energy.of(&usage),
        }
    }

    fn blocks(&self, parts: Vec<CompletionPart>) -> Vec<Block> {
        let (mut blocks, mut arguments) = (Vec::new(), String::new());
        for part in parts {
            match part {
                CompletionPart::Tool(event) => match search_blocks::of(&event) {
                    Some(block) => blocks.push(block),
                    None => mcp_blocks::add(event, &mut arguments, &mut blocks),
                },
                CompletionPart::Text(text) => blocks.push(Block::Text { text }),
                CompletionPart::Reasoning(text) => blocks.push(self.reasoning(text)),
                CompletionPart::ToolCall(call) => blocks.push(tool_use(call)),
            }
        }
        blocks
    }

    fn reasoning(&self, text: String) -> Block {
        let signature = opaque::encode(&text);
        let thinking = if self.display == Display::Text { text } else { String::new() };
        Block::Thinking { thinking, signature }
    }
}

fn tool_use(call: ToolCall) -> Block {
    let ToolCall { id, name, arguments, .. } = call;
    // A cut call has no arguments that could be shown; its message ended at `max_tokens`.
    let input = serde_json::from_str(&arguments).unwrap_or_else(|_| Value::Object(serde_json::Map::new()));
    Block::ToolUse { id, name, input }
}
fn push(event: StreamEvent, frames: &mut Frames) {
    frames.event(event.name(), &event);
}

/// Why a message ended. `calls` is whether it has a complete call.
fn stop_of(reason: FinishReason, matched: Option<StopMatch>, has_call: bool) -> StopDelta {
    let stop = |stop_reason| StopDelta { stop_reason, stop_sequence: None };
    match (reason, matched) {
        (FinishReason::Length, _) => stop("max_tokens"),
        (FinishReason::Stop, Some(StopMatch::String(text))) => {
            StopDelta { stop_reason: "stop_sequence", stop_sequence: Some(text) }
        }
        _ if has_call => stop("tool_use"),
        _ => stop("end_turn"),
    }
}

/// The client may send the message back, so that the model goes on.
fn paused() -> StopDelta {
    StopDelta { stop_reason: "pause_turn", stop_sequence: None }
}

impl Framer for MessagesFramer {
    type Body = JsonBody;

    fn start(&mut self, _frames: &mut Frames) {}

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        match event {
            Event::Engine(EngineEvent::Started { prompt_tokens, cached_tokens }) => {
                let usage = Usage { prompt_tokens, cached_tokens, ..Usage::default() };
                let message = self.message(Vec::new(), None, usage);
                push(StreamEvent::MessageStart { message }, frames);
                push(StreamEvent::Ping, frames);
                self.has_started = true;
            }
            Event::Engine(EngineEvent::Delta { delta, .. }) => self.delta(delta, frames),
            Event::Engine(EngineEvent::Finished { reason, matched, .. }) => {
                self.close(frames);
                self.stop = match self.pause {
                    Pause::No => stop_of(reason, matched, self.stop.stop_reason == "tool_use"),
                    Pause::AtLimit => paused(),
                };
            }
            Event::Tool(event) => self.tool(event, frames),
            Event::Engine(
                EngineEvent::Prompt(_)
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

    /// A ping may not come before the message has started.
    fn keep_alive(&mut self, frames: &mut Frames) {
        if self.has_started {
            push(StreamEvent::Ping, frames);
        }
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        let usage = self.usage_of(usage);
        push(StreamEvent::MessageDelta { delta: self.stop.clone(), usage }, frames);
        push(StreamEvent::MessageStop, frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        let request_id = std::mem::take(&mut self.request_id.0);
        push(StreamEvent::Error { error: error::object(error), request_id }, frames);
    }

    fn full(mut self, completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let completion = completions.into_iter().next().unwrap_or_default();
        let reason = completion.finish_reason.unwrap_or(FinishReason::Cancelled);
        let has_call = completion.tool_calls().any(|call| call.ending == CallEnding::Complete);
        let is_stopped = |part: &CompletionPart| matches!(part, CompletionPart::Tool(ToolEvent::Stopped(_)));
        let stop = match completion.parts.iter().any(is_stopped) {
            true => paused(),
            false => stop_of(reason, completion.matched, has_call),
        };
        self.searches = completion.parts.iter().filter(|part| search_blocks::is_made_in(part)).count();
        let content = self.blocks(completion.parts);
        JsonBody::of(&self.message(content, Some(stop), usage))
    }
}
