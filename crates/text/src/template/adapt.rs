//! A conversation in the form that a chat template supports.
//!
//! Invariants: what a message becomes depends on the messages up to it and the one after it, so that a conversation that
//! grew has the same beginning. No text is lost.

use std::collections::BTreeMap;

use serde_json::Value;

use super::caps::{ArgumentsAs, CallIds, EmptyContent, Support, SystemMessages, TemplateCaps};
use super::tool_prompt::ToolPrompt;
use crate::message::{ContentPart, Message, Role, ToolArguments, ToolCall, ToolResult};
use crate::tool::{Tool, ToolPlace};

/// Between texts that become one.
const GAP: &str = "\n\n";

/// Messages and tools for a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapted {
    /// The messages.
    pub messages: Vec<Message>,
    /// The tools. The template shows none of them if the system prompt does.
    pub tools: Vec<Tool>,
}

impl TemplateCaps {
    /// The conversation in the form that the template supports: neighbours of one role are one message, system messages
    /// stand where it shows them, and tools that it does not show are in the system prompt, in this notation.
    pub fn adapt(&self, messages: Vec<Message>, tools: Vec<Tool>, notation: ToolPrompt) -> Adapted {
        let messages = named_results(messages);
        let (messages, tools) = match (self.tools, tools) {
            (Support::No, tools) => {
                let messages = notation.apply(messages, &tools);
                let hidden = tools.into_iter().map(|tool| Tool { place: ToolPlace::Message, ..tool });
                (messages, hidden.collect())
            }
            (Support::Yes, tools) if self.calls == Support::No => (notation.calls_as_text(messages), tools),
            (Support::Yes, tools) => (messages, tools),
        };
        let placed = self.place_system(messages);
        let mut adapted: Vec<Message> = Vec::with_capacity(placed.len());
        for message in placed {
            self.append(&mut adapted, message);
        }
        let messages = adapted.into_iter().map(|message| self.content(message)).collect();
        Adapted { messages, tools }
    }

    /// System messages at the start become one; later ones stay, or become a user's.
    fn place_system(&self, messages: Vec<Message>) -> Vec<Message> {
        let leading = messages.iter().take_while(|message| message.role == Role::System).count();
        let mut rest = messages.into_iter();
        let first: Vec<String> = rest.by_ref().take(leading).filter_map(|message| message.text()).collect();
        let first = (leading > 0).then(|| first.join(GAP));
        let mut placed = Vec::new();
        match (first, self.system) {
            (Some(text), SystemMessages::Nowhere) => placed.push(Message::new(Role::User, text)),
            (Some(text), _) => placed.push(Message::new(Role::System, text)),
            (None, _) => {}
        }
        placed.extend(rest.map(|message| match (&message.role, self.system) {
            (Role::System, SystemMessages::First | SystemMessages::Nowhere) => reminder(message),
            _ => message,
        }));
        placed
    }

    /// Appends a message, or adds it to the last one.
    fn append(&self, to: &mut Vec<Message>, message: Message) {
        let Some(last) = to.last_mut() else { return to.push(message) };
        let is_same = last.role == message.role && last.name == message.name;
        let joins = matches!(message.role, Role::System | Role::User | Role::Assistant);
        if is_same && joins {
            return merge(last, message.content);
        }
        if last.role == Role::Tool && message.role == Role::User && self.user_after_tool == Support::No {
            return add_to_result(last, message);
        }
        to.push(message);
    }

    /// The message with its calls, ids and content as the template takes them.
    fn content(&self, mut message: Message) -> Message {
        for part in &mut message.content {
            match part {
                ContentPart::ToolCall(call) => self.call(call),
                ContentPart::ToolResult(result) => self.id(&mut result.call_id),
                _ => {}
            }
        }
        let has_calls = message.content.iter().any(|part| matches!(part, ContentPart::ToolCall(_)));
        if has_calls && message.text().is_none_or(|text| text.is_empty()) {
            message.content.retain(|part| !matches!(part, ContentPart::Text(_)));
            if self.empty_content == EmptyContent::Text {
                message.content.insert(0, ContentPart::Text(String::new()));
            }
        }
        message
    }

    fn call(&self, call: &mut ToolCall) {
        self.id(&mut call.id);
        if let ToolArguments::Json(text) = &call.arguments {
            let canonical = match serde_json::from_str::<Value>(text) {
                Ok(value) => value.to_string(),
                Err(_) => text.clone(),
            };
            call.arguments = match self.arguments {
                ArgumentsAs::Object => ToolArguments::Json(canonical),
                ArgumentsAs::Text => ToolArguments::Text(canonical),
            };
        }
    }

    fn id(&self, id: &mut String) {
        let fits = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if self.call_ids == CallIds::Nine && !fits {
            *id = nine(id);
        }
    }
}

/// Gives results the name of the tool that was called, which some templates show.
fn named_results(mut messages: Vec<Message>) -> Vec<Message> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for message in &mut messages {
        let mut name = None;
        for part in &message.content {
            match part {
                ContentPart::ToolCall(call) => _ = names.insert(call.id.clone(), call.name.clone()),
                ContentPart::ToolResult(result) => name = names.get(&result.call_id).cloned(),
                _ => {}
            }
        }
        if message.role == Role::Tool && message.name.is_none() {
            message.name = name;
        }
    }
    messages
}

/// A system message as a part of a user's.
fn reminder(message: Message) -> Message {
    let text = message.text().unwrap_or_default();
    let text = if text.trim_start().starts_with("<system-reminder>") {
        text
    } else {
        format!("<system-reminder>\n{text}\n</system-reminder>")
    };
    Message { role: Role::User, name: None, content: vec![ContentPart::Text(text)] }
}

/// Adds parts to a message. Two texts that become neighbours are one.
fn merge(message: &mut Message, parts: Vec<ContentPart>) {
    for part in parts {
        let last_text = message.content.iter_mut().rev().find_map(|part| match part {
            ContentPart::Text(text) => Some(text),
            _ => None,
        });
        match (part, last_text) {
            (ContentPart::Text(text), Some(last)) => join(last, &text),
            (part, _) => message.content.push(part),
        }
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(GAP);
    }
    text.push_str(more);
}

/// Adds a user's text to the result of a tool.
fn add_to_result(message: &mut Message, user: Message) {
    let text = user.text().unwrap_or_default();
    let result = message.content.iter_mut().find_map(|part| match part {
        ContentPart::ToolResult(ToolResult { text, .. }) => Some(text),
        _ => None,
    });
    if let Some(result) = result {
        join(result, &text);
    }
}

/// Nine letters and digits that stand for an id.
fn nine(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let digit = |place: u32| {
        let index = (hash / 62_u64.pow(place) % 62) as usize;
        char::from(DIGITS.get(index).copied().unwrap_or(b'0'))
    };
    (0..9).map(digit).collect()
}
