//! An item of the input of the Responses API, read and validated.

use serde_json::Value;

use crate::wire::client_tools::ClientTool;
use crate::wire::media::Part;

/// An item of the input.
#[derive(Debug, Clone, PartialEq)]
pub enum InputItem {
    /// A message.
    Message {
        /// Its author.
        author: Author,
        /// Texts and images.
        parts: Vec<Part>,
    },
    /// Reasoning of the model.
    Reasoning {
        /// The reasoning or its summary.
        text: String,
        /// As it was sent to the client.
        encrypted: Option<String>,
    },
    /// A call of the model.
    Call {
        /// What the output refers to.
        call_id: String,
        /// The tool, with the namespace it is in.
        tool: CalledTool,
        /// JSON text, or the text of a custom tool.
        arguments: String,
    },
    /// The output of a call.
    Output {
        /// The call.
        call_id: String,
        /// Texts and images.
        parts: Vec<Part>,
    },
    /// What a compaction left of a conversation.
    Compaction {
        /// As it was sent to the client.
        encrypted: String,
    },
    /// Tools that a search found.
    FoundTools {
        /// The call.
        call_id: String,
        /// The tools, as sent.
        tools: Vec<Value>,
    },
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// Instructions.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// A tool that was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CalledTool {
    /// A function.
    Function {
        /// Its name.
        name: String,
        /// The namespace it is in.
        namespace: Option<String>,
    },
    /// A custom tool, by its name.
    Custom(String),
    /// A tool that the client runs.
    Client(ClientTool),
    /// The search for tools.
    Search,
}
