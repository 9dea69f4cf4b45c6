//! Tools in the system prompt, for templates that show none.

use serde_json::{Value, json};

use crate::message::{ContentPart, Message, Role, ToolArguments, ToolCall};
use crate::tool::{Tool, ToolPlace};

/// How the system prompt asks models without a format of their own to write calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolPrompt {
    /// `{"name": "NAME", "arguments": {…}}` between `<tool_call>` tags.
    #[default]
    Json,
    /// `TOOL_CALL: {"name": "NAME", "arguments": {…}}` on a line of its own.
    Line,
}

impl ToolPrompt {
    /// The messages with the tools in the system prompt, and with calls and results as text.
    pub(super) fn apply(self, messages: Vec<Message>, tools: &[Tool]) -> Vec<Message> {
        let mut messages: Vec<Message> = messages.into_iter().map(|message| self.plain(message)).collect();
        let mut shown = tools.iter().filter(|tool| tool.place == ToolPlace::Template).peekable();
        if shown.peek().is_none() {
            return messages;
        }
        let text = self.instructions(shown);
        let behind_system = messages.iter().take_while(|message| message.role == Role::System).count();
        messages.insert(behind_system, Message::new(Role::System, text));
        messages
    }

    /// The messages with calls as text.
    pub(super) fn calls_as_text(self, messages: Vec<Message>) -> Vec<Message> {
        let plain = |message: Message| if message.role == Role::Tool { message } else { self.plain(message) };
        messages.into_iter().map(plain).collect()
    }

    fn instructions<'a>(self, tools: impl Iterator<Item = &'a Tool>) -> String {
        let mut text = "These tools can be called, each with its parameters as a JSON schema:\n".to_owned();
        for tool in tools {
            text.push_str(&tool.function().to_string());
            text.push('\n');
        }
        let form = self.call(&json!("NAME"), "{\"PARAMETER\": VALUE}");
        text.push_str("\nTo call a tool, write exactly this, and nothing after it:\n");
        text.push_str(&form);
        text.push_str("\nThe result comes in the next message. Answer in plain text when no tool is needed.");
        text
    }

    fn call(self, name: &Value, arguments: &str) -> String {
        let object = format!("{{\"name\": {name}, \"arguments\": {arguments}}}");
        match self {
            Self::Json => format!("<tool_call>{object}</tool_call>"),
            Self::Line => format!("TOOL_CALL: {object}"),
        }
    }

    fn plain(self, message: Message) -> Message {
        let is_tool = message.role == Role::Tool;
        let has_calls = message.content.iter().any(|part| matches!(part, ContentPart::ToolCall(_)));
        if !is_tool && !has_calls {
            return message;
        }
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        for part in message.content {
            match part {
                ContentPart::Text(text) if text.is_empty() => {}
                ContentPart::Text(text) => texts.push(text),
                ContentPart::ToolCall(ToolCall { name, arguments, .. }) => {
                    let (ToolArguments::Json(arguments) | ToolArguments::Text(arguments)) = arguments;
                    texts.push(self.call(&Value::String(name), &arguments));
                }
                ContentPart::ToolResult(result) => {
                    texts.push(format!("<tool_response>\n{}\n</tool_response>", result.text));
                }
                other => others.push(other),
            }
        }
        others.insert(0, ContentPart::Text(texts.join("\n")));
        let role = if is_tool { Role::User } else { message.role };
        Message { role, name: if is_tool { None } else { message.name }, content: others }
    }
}
