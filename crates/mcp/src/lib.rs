//! Tools of MCP servers: configuration, processes, connections, limits and definitions, and the loop in which a model calls
//! them. Start at [`Servers::start`]; [`ToolLoop`] decides what becomes of calls.
//!
//! Invariants: no edge to a crate of ours, no model and no API's format. What a server sends is not trusted: each message,
//! list and result has a limit, and a server that fails costs its own calls. Values of environments and headers are in no
//! message.

mod approval;
mod arguments;
mod backoff;
mod bounded_client;
mod config;
mod connection;
mod definition;
mod dropped_transport;
mod environment;
mod error;
mod guard;
mod listing;
mod names;
mod outcome;
mod pins;
mod place;
mod plain_text;
mod process;
mod sandbox;
mod secrets;
mod server;
mod servers;
mod supervisor;
mod tool_loop;
mod variables;
pub mod web_search;

pub use approval::{Approval, Rule};
pub use arguments::Arguments;
pub use config::{Config, LoopLimits, SearchTool, Selector};
pub use connection::RemoteServer;
pub use definition::Definition;
pub use error::{CallError, ConfigError};
pub use listing::{OfferedTool, ToolState};
pub use names::offered;
pub use outcome::Outcome;
pub use pins::Pins;
pub use place::{Place, ProcessLimits, ServerConfig};
pub use plain_text::plain;
pub use sandbox::{Sandbox, SandboxMode, SandboxRules};
pub use server::{ServerState, ServerStatus};
pub use servers::Servers;
pub use tool_loop::{Action, After, Call, LoopCall, Plan, Spent, StopReason, ToolLoop};
