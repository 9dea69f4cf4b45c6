//! Items of MCP servers: tools, calls and their results, and calls that wait for an approval.
//!
//! Invariant: an item has its place when it is added. Calls that run at once end in any order.

use serde_json::Value;

use super::events::Events;
use super::kept;
use crate::response::{Frames, ListedServer, StartedCall, ToolEvent};
use crate::wire::responses::item_ids;
use crate::wire::responses::response::{EventData, McpItem, OutputItem, TextEvent};

/// The calls without a result.
#[derive(Default)]
pub struct McpCalls(Vec<OpenCall>);

struct OpenCall {
    call_id: String,
    output_index: usize,
    item: CallItem,
}

/// A call as its item shows it.
#[derive(Clone)]
struct CallItem {
    id: String,
    call: StartedCall,
    arguments: String,
}

impl CallItem {
    fn at(&self, status: &'static str, output: Option<String>, error: Option<String>) -> McpItem {
        McpItem::McpCall {
            id: self.id.clone(),
            server_label: self.call.label.clone(),
            name: self.call.name.clone(),
            arguments: self.arguments.clone(),
            output,
            error,
            status,
            approval_request_id: self.call.approval_id.clone(),
        }
    }
}

impl McpCalls {
    /// Adds an event. `done` are the items of the response, whose id is beside them.
    pub fn event(
        &mut self,
        event: ToolEvent,
        (response_id, done): (&str, &mut Vec<Value>),
        events: &mut Events,
        frames: &mut Frames,
    ) {
        match event {
            ToolEvent::Listed(server) => listed(server, (response_id, done), events, frames),
            ToolEvent::Started(call) => self.started(call, (response_id, done), events, frames),
            ToolEvent::Arguments { id, json } => {
                let Some(open) = self.open(&id) else { return };
                open.item.arguments.push_str(&json);
                let event = TextEvent { delta: Some(json), ..open.place() };
                events.push("response.mcp_call_arguments.delta", EventData::Text(event), frames);
            }
            ToolEvent::Called { id } => {
                let Some(open) = self.open(&id) else { return };
                let event = TextEvent { arguments: Some(open.item.arguments.clone()), ..open.place() };
                events.push("response.mcp_call_arguments.done", EventData::Text(event), frames);
                put(done, open.output_index, &open.item.at("calling", None, None));
            }
            ToolEvent::Ended { id, outcome } => {
                let Some(index) = self.0.iter().rposition(|open| open.call_id == id) else { return };
                let open = self.0.remove(index);
                let (kind, item) = match outcome.is_error {
                    false => {
                        ("response.mcp_call.completed", open.item.at("completed", Some(outcome.text), None))
                    }
                    true => ("response.mcp_call.failed", open.item.at("failed", None, Some(outcome.text))),
                };
                events.push(kind, EventData::Text(open.place()), frames);
                put(done, open.output_index, &item);
                let data = EventData::Item { output_index: open.output_index, item: OutputItem::Mcp(item) };
                events.push("response.output_item.done", data, frames);
            }
            ToolEvent::NeedsApproval { approval_id, call, arguments } => {
                let StartedCall { label: server_label, name, .. } = call;
                let item = McpItem::McpApprovalRequest { id: approval_id, server_label, name, arguments };
                let output_index = done.len();
                done.push(kept(&item));
                for kind in ["response.output_item.added", "response.output_item.done"] {
                    let item = OutputItem::Mcp(item.clone());
                    events.push(kind, EventData::Item { output_index, item }, frames);
                }
            }
            ToolEvent::SearchStarted { .. }
            | ToolEvent::SearchEnded { .. }
            | ToolEvent::Limited(_)
            | ToolEvent::Stopped(_) => {}
        }
    }

    fn started(
        &mut self,
        call: StartedCall,
        (response_id, done): (&str, &mut Vec<Value>),
        events: &mut Events,
        frames: &mut Frames,
    ) {
        let output_index = done.len();
        let id = item_ids::of("mcp", response_id, output_index);
        let call_id = call.id.clone();
        let open = OpenCall { call_id, output_index, item: CallItem { id, call, arguments: String::new() } };
        let item = open.item.at("in_progress", None, None);
        done.push(kept(&item));
        let data = EventData::Item { output_index, item: OutputItem::Mcp(item) };
        events.push("response.output_item.added", data, frames);
        events.push("response.mcp_call.in_progress", EventData::Text(open.place()), frames);
        self.0.push(open);
    }

    fn open(&mut self, call_id: &str) -> Option<&mut OpenCall> {
        self.0.iter_mut().rev().find(|open| open.call_id == call_id)
    }
}

impl OpenCall {
    fn place(&self) -> TextEvent {
        TextEvent { item_id: self.item.id.clone(), output_index: self.output_index, ..TextEvent::default() }
    }
}

fn put(done: &mut [Value], index: usize, item: &McpItem) {
    if let Some(place) = done.get_mut(index) {
        *place = kept(item);
    }
}

fn listed(
    server: ListedServer,
    (response_id, done): (&str, &mut Vec<Value>),
    events: &mut Events,
    frames: &mut Frames,
) {
    let output_index = done.len();
    let id = item_ids::of("mcpl", response_id, output_index);
    let ListedServer { label, tools } = server;
    let of = |tools: Vec<Value>| {
        let (id, server_label) = (id.clone(), label.clone());
        McpItem::McpListTools { id, server_label, tools, error: None }
    };
    let (begun, whole) = (of(Vec::new()), of(tools));
    done.push(kept(&whole));
    let place = || EventData::Text(TextEvent { item_id: id.clone(), output_index, ..TextEvent::default() });
    let item = |item: McpItem| EventData::Item { output_index, item: OutputItem::Mcp(item) };
    events.push("response.output_item.added", item(begun), frames);
    events.push("response.mcp_list_tools.in_progress", place(), frames);
    events.push("response.mcp_list_tools.completed", place(), frames);
    events.push("response.output_item.done", item(whole), frames);
}
