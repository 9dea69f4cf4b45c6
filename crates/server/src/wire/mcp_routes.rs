//! `/v1/mcp/servers`, `/v1/mcp/tools` and `/v1/mcp/execute`, as in vllm-mlx.

use serde::Serialize;
use serde_json::{Map, Value};

use super::fields::{Field, Fields, honoured};
use crate::error::ApiError;

/// Fields of `/v1/mcp/execute`.
pub const EXECUTE: &[Field] = &[
    honoured("tool_name", "the tool's name as `/v1/mcp/tools` lists it, or `server/tool`"),
    honoured("arguments", "an object that matches the tool's schema"),
];

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecuteRequest {
    /// The tool.
    pub tool_name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
}

impl ExecuteRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[EXECUTE])?;
        let name = fields.text("tool_name")?;
        let tool_name = fields.required("tool_name", name)?;
        let arguments = fields.object("arguments")?.unwrap_or_default();
        fields.finish();
        Ok(Self { tool_name, arguments })
    }
}

/// The configured servers.
#[derive(Debug, Clone, Serialize)]
pub struct ServerList {
    /// In the order of their names.
    pub servers: Vec<ListedServer>,
}

/// A configured server.
#[derive(Debug, Clone, Serialize)]
pub struct ListedServer {
    /// Its name.
    pub name: String,
    /// `connecting`, `connected` or `error`.
    pub state: &'static str,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Tools that are offered.
    pub tools_count: usize,
    /// Why it does not run.
    pub error: Option<String>,
    /// The version of the protocol.
    pub protocol_version: String,
    /// What confines its process.
    pub sandbox: String,
    /// How often it was started.
    pub starts: u64,
}

/// The tools that may be called.
#[derive(Debug, Clone, Serialize)]
pub struct ToolList {
    /// By server, as listed.
    pub tools: Vec<ListedTool>,
    /// How many.
    pub count: usize,
}

/// A tool.
#[derive(Debug, Clone, Serialize)]
pub struct ListedTool {
    /// The name by which models know it.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its server.
    pub server: String,
    /// Its name at the server.
    pub tool: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// `always` or `never`: whether a model's calls need an approval.
    pub approval: &'static str,
    /// SHA-256 of its definition.
    pub hash: String,
}

/// The result of a call.
#[derive(Debug, Clone, Serialize)]
pub struct Executed {
    /// The tool.
    pub tool_name: String,
    /// The result as text.
    pub content: Option<String>,
    /// The structured result, where the tool has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Why.
    pub error_message: Option<String>,
}
