//! Events of tools that the server runs.

use omnibus_mcp::{Outcome, StopReason};
use serde_json::Value;

/// An event of a tool that the server runs.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEvent {
    /// The tools of a server, which come first.
    Listed(ListedServer),
    /// The model begins a call.
    Started(StartedCall),
    /// More arguments of the call that began last.
    Arguments {
        /// The call.
        id: String,
        /// JSON text.
        json: String,
    },
    /// The arguments are complete, and the call is made.
    Called {
        /// The call.
        id: String,
    },
    /// The call has a result.
    Ended {
        /// The call.
        id: String,
        /// The result.
        outcome: Outcome,
    },
    /// The call waits for an approval, with all of its arguments.
    NeedsApproval {
        /// The approval's id.
        approval_id: String,
        /// The call.
        call: StartedCall,
        /// JSON text.
        arguments: String,
    },
    /// A search of the web begins.
    SearchStarted {
        /// The call.
        id: String,
        /// What is searched for.
        query: String,
    },
    /// It has ended.
    SearchEnded {
        /// The call.
        id: String,
        /// What was found.
        found: Found,
    },
    /// No more calls are made, and the next generation is the last.
    Limited(StopReason),
    /// The response ends with calls that are not made.
    Stopped(StopReason),
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// What the model reads, from which `omnibus_mcp::web_search::pages` reads the pages.
    Text(String),
    /// Nothing.
    Failed(SearchFailure),
}

/// Why a search found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchFailure {
    /// The request had as many searches as it may have.
    MaxUses,
    /// The tool failed, or the loop is at a limit.
    Unavailable,
}

impl SearchFailure {
    /// By Anthropic's name.
    pub fn code(self) -> &'static str {
        match self {
            Self::MaxUses => "max_uses_exceeded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The tools of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedServer {
    /// Its name for the client.
    pub label: String,
    /// Its tools, as OpenAI's API lists them.
    pub tools: Vec<Value>,
}

/// A call of a tool that the server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCall {
    /// The call's id.
    pub id: String,
    /// The server's name for the client.
    pub label: String,
    /// The tool's own name.
    pub name: String,
    /// The approval that it was waiting for.
    pub approval_id: Option<String>,
}
