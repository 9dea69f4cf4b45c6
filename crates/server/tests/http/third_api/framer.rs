//! Frames the third API: named events, content blocks, and its own end and errors.

use omnibus_engine::{Delta, Event as EngineEvent, FinishReason, Usage};
use omnibus_server::response::{Completion, Event, Framer, Frames, JsonBody, ResponseHeader};
use omnibus_server::{ApiError, ErrorKind, RequestId};

use super::wire::{self, Block, BlockDelta, Message, OutputUsage, StopReason, StreamEvent};

pub struct MessagesFramer {
    header: ResponseHeader,
    open: Option<BlockKind>,
    index: usize,
    stop_reason: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    ToolUse,
}

impl MessagesFramer {
    pub fn new(header: ResponseHeader) -> Self {
        Self { header, open: None, index: 0, stop_reason: "end_turn" }
    }

    fn message(&self, usage: Usage) -> Message {
        Message {
            id: "ID".into(),
            role: "assistant",
            model: self.header.model.clone(),
            content: Vec::new(),
            stop_reason: None,
            usage: wire::Usage {
                input_tokens: usage.prompt_tokens - usage.cached_tokens,
                cache_read_input_tokens: usage.cached_tokens,
                output_tokens: usage.completion_tokens,
            },
        }
    }

    fn delta(&mut self, delta: Delta, frames: &mut Frames) {
        match delta {
            Delta::Text(text) => {
                self.switch(BlockKind::Text, Block::Text { text: String::new() }, frames);
                self.block_delta(BlockDelta::TextDelta { text }, frames);
            }
            Delta::Reasoning(thinking) => {
                self.switch(BlockKind::Thinking, Block::Thinking { thinking: String::new() }, frames);
                self.block_delta(BlockDelta::ThinkingDelta { thinking }, frames);
            }
            Delta::ToolCallStart { id, name } => {
                self.stop_reason = "tool_use";
                let input = serde_json::json!({});
                self.switch(BlockKind::ToolUse, Block::ToolUse { id, name, input }, frames);
            }
            Delta::ToolCallArguments(partial_json) => {
                self.block_delta(BlockDelta::InputJsonDelta { partial_json }, frames);
            }
            Delta::ToolCallEnd(_) => self.close_block(frames),
        }
    }

    fn switch(&mut self, kind: BlockKind, content_block: Block, frames: &mut Frames) {
        if self.open == Some(kind) {
            return;
        }
        self.close_block(frames);
        self.open = Some(kind);
        push(StreamEvent::ContentBlockStart { index: self.index, content_block }, frames);
    }

    fn block_delta(&self, delta: BlockDelta, frames: &mut Frames) {
        push(StreamEvent::ContentBlockDelta { index: self.index, delta }, frames);
    }

    fn close_block(&mut self, frames: &mut Frames) {
        if self.open.take().is_some() {
            push(StreamEvent::ContentBlockStop { index: self.index }, frames);
            self.index += 1;
        }
    }
}

fn push(event: StreamEvent, frames: &mut Frames) {
    frames.event(event.name(), &event);
}

fn error_object(error: &ApiError) -> StreamEvent {
    let kind = match error.kind() {
        ErrorKind::RateLimited => "rate_limit_error",
        ErrorKind::Internal => "api_error",
        _ => "invalid_request_error",
    };
    StreamEvent::Error { error: wire::ErrorObject { kind, message: error.message().into() } }
}

pub fn error_body(error: &ApiError, _: &RequestId) -> JsonBody {
    JsonBody::of(&error_object(error))
}

impl Framer for MessagesFramer {
    type Body = JsonBody;

    fn start(&mut self, _frames: &mut Frames) {}

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        match event {
            Event::Engine(EngineEvent::Started { prompt_tokens, cached_tokens }) => {
                let message = self.message(Usage { prompt_tokens, cached_tokens, ..Usage::default() });
                push(StreamEvent::MessageStart { message }, frames);
            }
            Event::Engine(EngineEvent::Delta { delta, .. }) => self.delta(delta, frames),
            Event::Engine(EngineEvent::Finished { reason, .. }) => {
                self.close_block(frames);
                if reason == FinishReason::Length {
                    self.stop_reason = "max_tokens";
                }
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
            | Event::Tool(_)
            | Event::Failed(_) => {}
        }
    }

    fn finish(&mut self, usage: Usage, frames: &mut Frames) {
        let delta = StopReason { stop_reason: self.stop_reason };
        let usage = OutputUsage { output_tokens: usage.completion_tokens };
        push(StreamEvent::MessageDelta { delta, usage }, frames);
        push(StreamEvent::MessageStop, frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        push(error_object(error), frames);
    }

    fn full(self, completions: Vec<Completion>, usage: Usage) -> JsonBody {
        let mut message = self.message(usage);
        for completion in completions {
            let calls: Vec<Block> = completion
                .tool_calls()
                .map(|call| Block::ToolUse {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    input: serde_json::from_str(&call.arguments).unwrap_or_default(),
                })
                .collect();
            message.stop_reason = Some(if calls.is_empty() { "end_turn" } else { "tool_use" });
            let thinking = Block::Thinking { thinking: completion.reasoning().unwrap_or_default() };
            message
                .content
                .extend([thinking, Block::Text { text: completion.text() }].into_iter().chain(calls));
        }
        JsonBody::of(&message)
    }
}
