//! Output items, as their parts arrive.
//!
//! Invariant: items of generated text do not overlap: one is open at most, and the next is added when it is done. Calls of MCP
//! tools have their places at once, and their results later.

use omnibus_engine::{CallEnding, Delta, FinishReason, TokenInfo};
use serde_json::{Map, Value};

use super::events::Events;
use super::kept;
use super::mcp_items::McpCalls;
use super::search_items::Searches;
use super::shown::Shown;
use crate::lower::opaque;
use crate::lower::responses::{ToolKind, Toolbox};
use crate::response::custom_input::CustomInput;
use crate::response::openai::logprobs;
use crate::response::{Frames, ToolEvent};
use crate::wire::client_tools::ClientTool;
use crate::wire::generation::TokenNames;
use crate::wire::logprobs::ChatLogprob;
use crate::wire::responses::response::{
    ClientCall, ContentPart, EventData, OutputItem, SummaryPart, TextEvent,
};
use crate::wire::responses::{EncryptedReasoning, item_ids};

/// The output items so far.
pub struct Items {
    toolbox: Toolbox,
    encrypted: EncryptedReasoning,
    /// The response's.
    id: String,
    done: Vec<Value>,
    open: Option<OpenItem>,
    /// Log-probabilities of text that no event has had yet.
    unsent: Vec<ChatLogprob>,
    /// Calls of MCP tools that have no result yet.
    mcp: McpCalls,
    /// Searches of the web that have no result yet.
    searches: Searches,
}

struct OpenItem {
    id: String,
    kind: OpenKind,
    /// Its text, reasoning or arguments so far.
    text: String,
    /// Of a custom tool.
    input: CustomInput,
    /// Of a message, when requested.
    logprobs: Vec<ChatLogprob>,
}

#[derive(Clone, PartialEq, Eq)]
enum OpenKind {
    Message,
    Reasoning,
    Call { call_id: String, name: String, kind: ToolKind },
}

/// Whether an item is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

impl ItemStatus {
    /// Of the last item.
    pub fn at_end(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Completed,
            FinishReason::Length | FinishReason::Cancelled => Self::Incomplete,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

impl Items {
    /// No items yet.
    pub fn new(response_id: &str, toolbox: Toolbox, shown: Shown) -> Self {
        Self {
            toolbox,
            encrypted: shown.encrypted,
            id: response_id.to_owned(),
            done: Vec::new(),
            open: None,
            unsent: Vec::new(),
            mcp: McpCalls::default(),
            searches: Searches::new(shown.search),
        }
    }

    /// The items that are done.
    pub fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.done)
    }

    /// Adds a delta, with its tokens.
    pub fn delta(
        &mut self,
        delta: Delta,
        mut tokens: Vec<TokenInfo>,
        events: &mut Events,
        frames: &mut Frames,
    ) {
        if matches!(delta, Delta::Text(_)) {
            tokens.retain(|token| token.logprob.is_some());
            self.unsent.extend(logprobs::chat(tokens, TokenNames::Texts).content);
        }
        match delta {
            Delta::Text(text) | Delta::Reasoning(text) if text.is_empty() => {}
            Delta::Text(text) => self.append(&OpenKind::Message, text, events, frames),
            Delta::Reasoning(text) => self.append(&OpenKind::Reasoning, text, events, frames),
            Delta::ToolCallStart { id, name } => {
                let kind = self.toolbox.kind(&name);
                self.begin(OpenKind::Call { call_id: id, name, kind }, events, frames);
            }
            Delta::ToolCallArguments(json) => self.more(json, events, frames),
            Delta::ToolCallEnd(CallEnding::Complete) => self.close(ItemStatus::Completed, events, frames),
            Delta::ToolCallEnd(CallEnding::Cut) => self.close(ItemStatus::Incomplete, events, frames),
        }
    }

    /// Adds what became of a tool that the server runs. Calls are items that stay open beside others, until they have results.
    pub fn tool(&mut self, event: ToolEvent, events: &mut Events, frames: &mut Frames) {
        self.close(ItemStatus::Completed, events, frames);
        match event {
            ToolEvent::SearchStarted { id, query } => {
                self.searches.start((id, query), (&self.id, &mut self.done), events, frames);
            }
            ToolEvent::SearchEnded { id, found } => {
                self.searches.end((&id, found), &mut self.done, events, frames);
            }
            event => self.mcp.event(event, (&self.id, &mut self.done), events, frames),
        }
    }

    fn append(&mut self, kind: &OpenKind, text: String, events: &mut Events, frames: &mut Frames) {
        if self.open.as_ref().is_none_or(|open| open.kind != *kind) {
            self.begin(kind.clone(), events, frames);
        }
        self.more(text, events, frames);
    }

    fn begin(&mut self, kind: OpenKind, events: &mut Events, frames: &mut Frames) {
        self.close(ItemStatus::Completed, events, frames);
        let output_index = self.done.len();
        let prefix = match &kind {
            OpenKind::Message => "msg",
            OpenKind::Reasoning => "rs",
            OpenKind::Call { kind: ToolKind::Function { .. }, .. } => "fc",
            OpenKind::Call { kind: ToolKind::Custom, .. } => "ctc",
            OpenKind::Call { kind: ToolKind::Search, .. } => "tsc",
            OpenKind::Call { kind: ToolKind::Client(tool), .. } => tool.id_prefix(),
        };
        let id = item_ids::of(prefix, &self.id, output_index);
        let open =
            OpenItem { id, kind, text: String::new(), input: CustomInput::default(), logprobs: Vec::new() };
        if !comes_whole(&open) {
            let item = self.item(&open, ItemStatus::InProgress);
            events.push("response.output_item.added", EventData::Item { output_index, item }, frames);
        }
        if let Some(part) = part(&open, output_index) {
            events.push(part.0, part.1, frames);
        }
        self.open = Some(open);
    }

    /// Searches and calls of the client's tools are sent when they are complete, and the input of a custom tool as it is read out of the model's JSON.
    fn more(&mut self, delta: String, events: &mut Events, frames: &mut Frames) {
        let output_index = self.done.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(&delta);
        let delta = match &open.kind {
            OpenKind::Call { kind: ToolKind::Custom, .. } => open.input.push(&delta),
            _ => delta,
        };
        if delta.is_empty() {
            return;
        }
        let mut event = TextEvent { delta: Some(delta), ..text_event(open, output_index) };
        if open.kind == OpenKind::Message {
            let new = std::mem::take(&mut self.unsent);
            open.logprobs.extend(new.iter().cloned());
            event.logprobs = Some(new);
        }
        let kind = match &open.kind {
            OpenKind::Message => "response.output_text.delta",
            OpenKind::Reasoning => "response.reasoning_summary_text.delta",
            OpenKind::Call { kind: ToolKind::Function { .. }, .. } => {
                "response.function_call_arguments.delta"
            }
            OpenKind::Call { kind: ToolKind::Custom, .. } => "response.custom_tool_call_input.delta",
            OpenKind::Call { kind: ToolKind::Search | ToolKind::Client(_), .. } => return,
        };
        events.push(kind, EventData::Text(event), frames);
    }

    /// Completes the open item.
    pub fn close(&mut self, status: ItemStatus, events: &mut Events, frames: &mut Frames) {
        let Some(mut open) = self.open.take() else { return };
        if open.kind == OpenKind::Message {
            open.logprobs.append(&mut self.unsent);
        }
        let output_index = self.done.len();
        if comes_whole(&open) {
            let item = self.item(&open, ItemStatus::InProgress);
            events.push("response.output_item.added", EventData::Item { output_index, item }, frames);
        }
        done_events(&open, output_index, events, frames);
        let item = self.item(&open, status);
        self.done.push(kept(&item));
        events.push("response.output_item.done", EventData::Item { output_index, item }, frames);
    }

    fn item(&self, open: &OpenItem, status: ItemStatus) -> OutputItem {
        let (id, text) = (open.id.clone(), open.text.clone());
        let is_done = status != ItemStatus::InProgress;
        match &open.kind {
            OpenKind::Message => OutputItem::Message {
                id,
                status: status.name(),
                role: "assistant",
                content: if is_done { vec![output_text(text, open.logprobs.clone())] } else { Vec::new() },
            },
            OpenKind::Reasoning => OutputItem::Reasoning {
                id,
                encrypted_content: (self.encrypted == EncryptedReasoning::Include && is_done)
                    .then(|| opaque::encode(&text)),
                summary: if is_done { vec![SummaryPart::SummaryText { text }] } else { Vec::new() },
            },
            OpenKind::Call { call_id, name, kind } => {
                let (call_id, status) = (call_id.clone(), status.name());
                match kind {
                    ToolKind::Function { name, namespace } => OutputItem::FunctionCall {
                        id,
                        status,
                        call_id,
                        name: name.clone(),
                        namespace: namespace.clone(),
                        arguments: text,
                    },
                    ToolKind::Custom => OutputItem::CustomToolCall {
                        id,
                        status,
                        call_id,
                        name: name.clone(),
                        input: open.input.whole(&text),
                    },
                    ToolKind::Client(tool) => OutputItem::Client(ClientCall {
                        kind: tool.call_type(),
                        id,
                        call_id,
                        // There is no incomplete patch.
                        status: if *tool == ClientTool::ApplyPatch && status == "incomplete" {
                            "in_progress"
                        } else {
                            status
                        },
                        fields: tool.fields(&text),
                    }),
                    ToolKind::Search => OutputItem::ToolSearchCall {
                        id,
                        status,
                        call_id,
                        execution: "client",
                        arguments: serde_json::from_str(&text).unwrap_or_else(|_| Value::Object(Map::new())),
                    },
                }
            }
        }
    }
}

/// Whether clients read the fields of an item when it is added, so that it is added when it is complete.
fn comes_whole(open: &OpenItem) -> bool {
    matches!(open.kind, OpenKind::Call { kind: ToolKind::Client(_), .. })
}

fn output_text(text: String, logprobs: Vec<ChatLogprob>) -> ContentPart {
    ContentPart::OutputText { text, annotations: Vec::new(), logprobs }
}

/// The event that starts the only part of an item.
fn part(open: &OpenItem, output_index: usize) -> Option<(&'static str, EventData)> {
    let (item_id, text) = (open.id.clone(), open.text.clone());
    match &open.kind {
        OpenKind::Message => {
            let part = output_text(text, open.logprobs.clone());
            let data = EventData::Part { item_id, output_index, content_index: 0, part };
            Some(("response.content_part.added", data))
        }
        OpenKind::Reasoning => {
            let part = SummaryPart::SummaryText { text };
            let data = EventData::Summary { item_id, output_index, summary_index: 0, part };
            Some(("response.reasoning_summary_part.added", data))
        }
        OpenKind::Call { .. } => None,
    }
}

/// The events of the whole text of an item.
fn done_events(open: &OpenItem, output_index: usize, events: &mut Events, frames: &mut Frames) {
    let event = text_event(open, output_index);
    let text = open.text.clone();
    let (kind, event) = match &open.kind {
        OpenKind::Message => {
            let logprobs = Some(open.logprobs.clone());
            ("response.output_text.done", TextEvent { text: Some(text), logprobs, ..event })
        }
        OpenKind::Reasoning => {
            ("response.reasoning_summary_text.done", TextEvent { text: Some(text), ..event })
        }
        OpenKind::Call { kind: ToolKind::Function { .. }, .. } => {
            ("response.function_call_arguments.done", TextEvent { arguments: Some(text), ..event })
        }
        OpenKind::Call { kind: ToolKind::Custom, .. } => {
            let input = open.input.whole(&text);
            let rest = open.input.rest(&input);
            if !rest.is_empty() {
                let delta = TextEvent { delta: Some(rest.to_owned()), ..event.clone() };
                events.push("response.custom_tool_call_input.delta", EventData::Text(delta), frames);
            }
            ("response.custom_tool_call_input.done", TextEvent { input: Some(input), ..event })
        }
        OpenKind::Call { kind: ToolKind::Search | ToolKind::Client(_), .. } => return,
    };
    events.push(kind, EventData::Text(event), frames);
    let done = part(open, output_index).map(|(kind, data)| match kind {
        "response.content_part.added" => ("response.content_part.done", data),
        _ => ("response.reasoning_summary_part.done", data),
    });
    if let Some((kind, data)) = done {
        events.push(kind, data, frames);
    }
}

fn text_event(open: &OpenItem, output_index: usize) -> TextEvent {
    let is_message = open.kind == OpenKind::Message;
    TextEvent {
        item_id: open.id.clone(),
        output_index,
        content_index: is_message.then_some(0),
        logprobs: is_message.then(Vec::new),
        summary_index: (open.kind == OpenKind::Reasoning).then_some(0),
        ..TextEvent::default()
    }
}
