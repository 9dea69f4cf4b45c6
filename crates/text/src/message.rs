//! The messages of a conversation, from an API's request to the chat template.
//!
//! Invariants: plain values, serializable in formats that name no fields. What a part means is in its type; how a
//! template sees it is decided in [`crate::template`] alone.

use serde::{Deserialize, Serialize};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// The name of a participant or a tool.
    pub name: Option<String>,
    /// In the order of the request.
    pub content: Vec<ContentPart>,
}

/// The author of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Instructions.
    System,
    /// The client.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A role that only some templates know, as `developer` or `ipython`.
    Other(String),
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// An image.
    Image(MediaIndex),
    /// A recording.
    Audio(MediaIndex),
    /// A video.
    Video(MediaIndex),
    /// The model's reasoning before its answer.
    Reasoning(String),
    /// A call that the model made.
    ToolCall(ToolCall),
    /// The result of a call.
    ToolResult(ToolResult),
}

/// Which of the conversation's media a part is: an index into a list beside the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaIndex(pub usize);

/// A call that the model made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the result refers to.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments.
    pub arguments: ToolArguments,
}

/// The arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolArguments {
    /// A JSON object, as text. Templates see the object.
    Json(String),
    /// What the model wrote, where it is no JSON object. Templates see the text.
    Text(String),
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call.
    pub call_id: String,
    /// What the tool returned.
    pub text: String,
}

impl Message {
    /// A message of one text.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, name: None, content: vec![ContentPart::Text(text.into())] }
    }

    /// Its texts, joined. None if it has none.
    pub fn text(&self) -> Option<String> {
        let texts = self.content.iter().filter_map(ContentPart::text);
        texts.fold(None, |joined: Option<String>, text| Some(joined.unwrap_or_default() + text))
    }

    /// This message with one text in place of its text, images, recordings and videos.
    pub fn with_text(mut self, text: &str) -> Self {
        let mut is_result = false;
        self.content.retain_mut(|part| match part {
            ContentPart::ToolResult(result) => {
                is_result = true;
                text.clone_into(&mut result.text);
                true
            }
            part => !part.is_content(),
        });
        if !is_result {
            self.content.push(ContentPart::Text(text.to_owned()));
        }
        self
    }
}

impl ContentPart {
    /// The text of a part that templates show as the content of its message.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::ToolResult(result) => Some(&result.text),
            _ => None,
        }
    }

    /// Whether it is reasoning.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self, Self::Reasoning(_))
    }

    /// Whether it belongs to the content of its message, and not to a field of its own.
    pub(crate) fn is_content(&self) -> bool {
        match self {
            Self::Text(_) | Self::Image(_) | Self::Audio(_) | Self::Video(_) | Self::ToolResult(_) => true,
            Self::Reasoning(_) | Self::ToolCall(_) => false,
        }
    }
}

impl Role {
    /// The role's name in templates.
    pub fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Role {
    fn from(name: &str) -> Self {
        match name {
            "system" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            other => Self::Other(other.to_owned()),
        }
    }
}
