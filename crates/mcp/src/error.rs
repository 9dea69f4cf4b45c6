//! What can go wrong: a configuration that is not valid, and a call without a result.

use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Something in the file is wrong.
    #[error("{path}: {why}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What, in words that name the field.
        why: String,
    },
}

/// Why a call has no result. The message is for a model and for clients: it holds no secrets.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// No tool has the name.
    #[error("there is no tool `{0}`")]
    Unknown(String),
    /// The tool exists, and may not be called.
    #[error("the tool `{tool}` is not offered: {why}")]
    NotOffered {
        /// The tool.
        tool: String,
        /// Why.
        why: String,
    },
    /// The arguments do not match the tool's schema.
    #[error("the arguments do not match the tool's schema: {0}")]
    Arguments(String),
    /// The server does not run.
    #[error("the MCP server `{server}` is not available: {why}")]
    Unavailable {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// The call took too long.
    #[error("the MCP server `{server}` did not answer within {seconds} s")]
    TimedOut {
        /// The server.
        server: String,
        /// The limit.
        seconds: f64,
    },
    /// The server refused the call.
    #[error("the MCP server `{server}` refused the call: {why}")]
    Refused {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
}
