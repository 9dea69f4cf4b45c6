//! The framer of the page's chat: an answer as text, and as HTML of its Markdown.
//!
//! Each frame is an object with a `type`: `model`, `text` and `reasoning` (pieces), `block` (HTML that stays), `tail` (HTML of the
//! block that grows, which the next `tail` or `block` replaces), `call` and `arguments`, with `server` where this server makes the
//! call, and then its `result`; `approval`, a call that waits for one; `note`, `usage`, `error`.

use std::time::{Duration, Instant};

use omnibus_engine::{Delta, Event as EngineEvent, FinishReason, Usage};
use omnibus_page::Blocks;
use serde_json::{Value, json};

use super::openai::finish_reason;
use super::{Completion, Event, Framer, Frames, JsonBody, ResponseHeader, StartedCall, ToolEvent};
use crate::error::ApiError;

/// The shortest time between two tails.
const TAIL_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of Markdown that are sent as tails in a second, because each tail repeats what was in the one before it.
const TAIL_RATE: u64 = 200_000;

/// Frames one answer for the page.
pub struct PageFramer {
    model: String,
    blocks: Blocks,
    /// So far.
    usage: Usage,
    /// The id of the last started call.
    call: String,
    next_tail: Instant,
    reason: Option<FinishReason>,
}

impl PageFramer {
    /// The framer of one answer.
    pub fn new(header: ResponseHeader) -> Self {
        Self {
            model: header.model,
            blocks: Blocks::default(),
            usage: Usage::default(),
            call: String::new(),
            next_tail: Instant::now(),
            reason: None,
        }
    }

    fn delta(&mut self, delta: Delta, frames: &mut Frames) {
        match delta {
            Delta::Text(text) if text.is_empty() => {}
            Delta::Text(text) => {
                let finished = self.blocks.push(&text).finished;
                frames.data(&json!({"type": "text", "text": text}));
                send_blocks(finished, frames);
                self.send_tail(Instant::now(), frames);
            }
            Delta::Reasoning(text) => frames.data(&json!({"type": "reasoning", "text": text})),
            Delta::ToolCallStart { id, name } => {
                frames.data(&json!({"type": "call", "id": id, "name": name}));
                self.call = id;
            }
            Delta::ToolCallArguments(text) => {
                frames.data(&json!({"type": "arguments", "id": self.call, "text": text}));
            }
            Delta::ToolCallEnd(_) => {}
        }
    }

    fn tool(event: ToolEvent, frames: &mut Frames) {
        match event {
            ToolEvent::Listed(_)
            | ToolEvent::Called { .. }
            | ToolEvent::SearchStarted { .. }
            | ToolEvent::SearchEnded { .. } => {}
            ToolEvent::Started(StartedCall { id, label, name, .. }) => {
                frames.data(&json!({"type": "call", "id": id, "name": name, "server": label}));
            }
            ToolEvent::Arguments { id, json } => {
                frames.data(&json!({"type": "arguments", "id": id, "text": json}));
            }
            ToolEvent::Ended { id, outcome } => {
                let (text, failed) = (outcome.text, outcome.is_error);
                frames.data(&json!({"type": "result", "id": id, "text": text, "failed": failed}));
            }
            ToolEvent::NeedsApproval { approval_id, call, arguments } => {
                let StartedCall { label, name, .. } = call;
                frames.data(&json!({
                    "type": "approval", "id": approval_id, "server": label, "name": name, "arguments": arguments,
                }));
            }
            ToolEvent::Limited(reason) | ToolEvent::Stopped(reason) => {
                let text = format!("No more calls of tools: {}", reason.name());
                frames.data(&json!({"type": "note", "text": text}));
            }
        }
    }

    /// Sends the block that grows, and the count of tokens, unless the last time was just now.
    fn send_tail(&mut self, now: Instant, frames: &mut Frames) {
        if now < self.next_tail {
            return;
        }
        let bytes = u64::try_from(self.blocks.tail_bytes()).unwrap_or(u64::MAX);
        self.next_tail =
            now + TAIL_INTERVAL.max(Duration::from_millis(bytes.saturating_mul(1000) / TAIL_RATE));
        frames.data(&json!({"type": "tail", "html": self.blocks.tail()}));
        frames.data(&usage(&self.usage, None));
    }
}

fn send_blocks(finished: Vec<String>, frames: &mut Frames) {
    for html in finished {
        frames.data(&json!({"type": "block", "html": html}));
    }
}

fn usage(usage: &Usage, reason: Option<FinishReason>) -> Value {
    let counts = json!({
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
    });
    json!({"type": "usage", "usage": counts, "finish_reason": reason.map(finish_reason)})
}

impl Framer for PageFramer {
    type Body = JsonBody;

    fn start(&mut self, frames: &mut Frames) {
        frames.data(&json!({"type": "model", "model": self.model}));
    }

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        match event {
            Event::Engine(EngineEvent::Started { prompt_tokens, cached_tokens }) => {
                self.usage = Usage { prompt_tokens, cached_tokens, ..self.usage };
            }
            Event::Engine(EngineEvent::Delta { delta, tokens }) => {
                self.usage.completion_tokens += tokens.len();
                self.delta(delta, frames);
            }
            Event::Engine(EngineEvent::Finished { reason, .. }) => self.reason = Some(reason),
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
            Event::Tool(event) => Self::tool(event, frames),
        }
    }

    fn finish(&mut self, total: Usage, frames: &mut Frames) {
        send_blocks(std::mem::take(&mut self.blocks).finish().finished, frames);
        frames.data(&usage(&total, self.reason));
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        send_blocks(std::mem::take(&mut self.blocks).finish().finished, frames);
        frames.data(&json!({"type": "error", "message": error.message()}));
    }

    fn full(self, completions: Vec<Completion>, total: Usage) -> JsonBody {
        let text = completions.first().map(Completion::text).unwrap_or_default();
        JsonBody::of(
            &json!({"model": self.model, "html": omnibus_page::html(&text), "usage": usage(&total, self.reason)}),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_of(framer: &mut PageFramer, delta: Delta) -> Vec<Value> {
        let mut frames = Frames::default();
        framer.event(0, Event::Engine(EngineEvent::Delta { delta, tokens: Vec::new() }), &mut frames);
        frames.take().iter().map(|frame| serde_json::from_str(&frame.data).unwrap()).collect()
    }

    fn framer() -> PageFramer {
        PageFramer::new(ResponseHeader { id: "page-1".to_owned(), created: 0, model: "m".to_owned() })
    }

    #[test]
    fn blocks_come_once_and_the_tail_is_not_sent_at_each_token() {
        let mut framer = framer();
        let first = frames_of(&mut framer, Delta::Text("One".to_owned()));
        assert_eq!(first[0], json!({"type": "text", "text": "One"}));
        assert_eq!(first[1], json!({"type": "tail", "html": "<p>One</p>\n"}));
        framer.next_tail = Instant::now() + Duration::from_secs(3600);
        assert_eq!(frames_of(&mut framer, Delta::Text(" two\n\n".to_owned())).len(), 1);
        let last = frames_of(&mut framer, Delta::Text("- a\n".to_owned()));
        assert_eq!(last[1], json!({"type": "block", "html": "<p>One two</p>\n"}));
        let mut frames = Frames::default();
        framer.finish(Usage::default(), &mut frames);
        let frames = frames.take();
        assert!(frames[0].data.contains("<li>a</li>") && frames[1].data.contains("\"finish_reason\""));
    }

    #[test]
    fn a_long_block_is_sent_less_often() {
        let mut framer = framer();
        let since = Instant::now();
        frames_of(&mut framer, Delta::Text("x".repeat(1_000_000)));
        assert!(framer.next_tail >= since + Duration::from_secs(5));
    }

    #[test]
    fn arguments_name_their_call() {
        let mut framer = framer();
        frames_of(&mut framer, Delta::ToolCallStart { id: "c1".to_owned(), name: "f".to_owned() });
        let frames = frames_of(&mut framer, Delta::ToolCallArguments("{}".to_owned()));
        assert_eq!(frames, [json!({"type": "arguments", "id": "c1", "text": "{}"})]);
    }
}
