//! Calls that the server makes, in the answers of chat completions.

use omnibus_mcp::Outcome;

use crate::response::{Completion, CompletionPart, ToolEvent};
use crate::wire::chat::McpCall;

/// The calls of a choice so far.
#[derive(Debug, Default)]
pub struct McpCalls {
    /// Their ids, in order.
    ids: Vec<String>,
    stop: Option<&'static str>,
}

impl McpCalls {
    /// What is new of a call, by an event.
    pub fn event(&mut self, event: ToolEvent) -> Option<McpCall> {
        match event {
            ToolEvent::Started(call) => {
                self.ids.push(call.id.clone());
                Some(McpCall {
                    index: Some(self.ids.len() - 1),
                    id: Some(call.id),
                    server_label: Some(call.label),
                    name: Some(call.name),
                    arguments: Some(String::new()),
                    status: Some("in_progress"),
                    ..McpCall::default()
                })
            }
            ToolEvent::Arguments { id, json } => Some(McpCall { arguments: Some(json), ..self.call(&id) }),
            ToolEvent::Called { id } => Some(McpCall { status: Some("calling"), ..self.call(&id) }),
            ToolEvent::Ended { id, outcome } => Some(ended(self.call(&id), outcome)),
            ToolEvent::Limited(reason) | ToolEvent::Stopped(reason) => {
                self.stop = Some(reason.name());
                None
            }
            ToolEvent::Listed(_)
            | ToolEvent::NeedsApproval { .. }
            | ToolEvent::SearchStarted { .. }
            | ToolEvent::SearchEnded { .. } => None,
        }
    }

    /// The limit that ended the calls.
    pub fn stop(&self) -> Option<&'static str> {
        self.stop
    }

    /// The calls of a whole completion, and the limit that ended them.
    pub fn whole(completion: &Completion) -> (Vec<McpCall>, Option<&'static str>) {
        let mut calls = Self::default();
        let mut whole: Vec<McpCall> = Vec::new();
        for part in &completion.parts {
            let CompletionPart::Tool(event) = part else { continue };
            let Some(new) = calls.event(event.clone()) else { continue };
            match new.index.and_then(|index| whole.get_mut(index)) {
                Some(call) => add(call, new),
                None => whole.push(McpCall { index: None, ..new }),
            }
        }
        (whole, calls.stop)
    }

    /// The newest call with an id: a later generation may use one again.
    fn call(&self, id: &str) -> McpCall {
        McpCall { index: self.ids.iter().rposition(|own| own == id), ..McpCall::default() }
    }
}

fn add(call: &mut McpCall, new: McpCall) {
    if let (Some(arguments), Some(more)) = (&mut call.arguments, new.arguments) {
        arguments.push_str(&more);
    }
    call.status = new.status.or(call.status);
    call.output = new.output.or(call.output.take());
    call.error = new.error.or(call.error.take());
}

fn ended(call: McpCall, outcome: Outcome) -> McpCall {
    match outcome.is_error {
        false => McpCall { status: Some("completed"), output: Some(outcome.text), ..call },
        true => McpCall { status: Some("failed"), error: Some(outcome.text), ..call },
    }
}
