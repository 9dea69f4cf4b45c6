//! What the settings say about MCP servers.

use std::path::PathBuf;

/// MCP servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpSettings {
    /// The file with the servers.
    pub file: Option<PathBuf>,
    /// Hosts that a request's `server_url` may name.
    pub domains: Vec<String>,
    /// What `mcp ls` does with definitions.
    pub pinning: Pinning,
}

/// What `mcp ls` does with definitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pinning {
    /// It shows them.
    #[default]
    Show,
    /// It writes their hashes to the file of pins.
    Write,
}
