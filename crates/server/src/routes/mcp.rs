//! `/v1/mcp`: the servers of `--mcp-config`, their tools, and calls that a client makes itself.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use omnibus_mcp::{Arguments, CallError, OfferedTool, ServerState, ServerStatus, ToolState};
use serde_json::Value;

use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::keys::Key;
use crate::mcp::{SharedMcp, call_error};
use crate::wire::mcp_routes::{ExecuteRequest, Executed, ListedServer, ListedTool, ServerList, ToolList};

/// Lists the servers of which the key may use a tool.
pub async fn servers(State(app): State<Arc<App>>, Extension(key): Extension<Arc<Key>>) -> Json<ServerList> {
    let statuses = app.mcp.iter().flat_map(|mcp| mcp.servers().statuses());
    let visible =
        statuses.filter(|status| key.tools.is_none() || status.tools.iter().any(|tool| may_call(&key, tool)));
    Json(ServerList { servers: visible.map(|status| listed(status, &key)).collect() })
}

fn listed(status: ServerStatus, key: &Key) -> ListedServer {
    let is_counted = |tool: &&OfferedTool| tool.state == ToolState::Offered && may_call(key, tool);
    let (state, error) = match status.state {
        ServerState::Starting => ("connecting", None),
        ServerState::Ready => ("connected", None),
        ServerState::Failed(why) => ("error", Some(why)),
    };
    ListedServer {
        tools_count: status.tools.iter().filter(is_counted).count(),
        name: status.name,
        state,
        transport: status.transport,
        error,
        protocol_version: status.protocol,
        sandbox: status.sandbox,
        starts: status.starts,
    }
}

fn may_call(key: &Key, tool: &OfferedTool) -> bool {
    key.may_call(&tool.server, &tool.definition.name)
}

/// Lists the tools that the key may use.
pub async fn tools(State(app): State<Arc<App>>, Extension(key): Extension<Arc<Key>>) -> Json<ToolList> {
    let tools = app.mcp.iter().flat_map(|mcp| mcp.servers().tools()).filter(|tool| may_call(&key, tool));
    let tool = |tool: OfferedTool| ListedTool {
        name: tool.offered,
        description: tool.definition.description.clone().unwrap_or_default(),
        server: tool.server,
        tool: tool.definition.name.clone(),
        parameters: Value::Object(tool.definition.schema.clone()),
        approval: tool.rule.name(),
        hash: tool.definition.hash.clone(),
    };
    let tools: Vec<ListedTool> = tools.map(tool).collect();
    Json(ToolList { count: tools.len(), tools })
}

/// Calls a tool. The client that sends it approves it.
pub async fn execute(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Json<Executed>, ApiError> {
    let body = app.bodies.json(request).await?;
    let read = move || {
        let (value, _reading) = body.parse()?;
        ExecuteRequest::read(value)
    };
    let ExecuteRequest { tool_name, arguments } = blocking(read).await?;
    let unknown = || call_error(&CallError::Unknown(tool_name.clone()));
    let mcp: &SharedMcp = app.mcp.as_ref().ok_or_else(unknown)?;
    let tool = mcp.servers().find(&tool_name).map_err(|error| call_error(&error))?;
    // Of a tool that the key may not use it learns nothing.
    let tool = Some(tool).filter(|tool| may_call(&key, tool)).ok_or_else(unknown)?;
    let arguments =
        Arguments::check(arguments, &tool.definition.schema).map_err(|error| call_error(&error))?;
    let outcome = mcp.servers().call(&tool, arguments).await.map_err(|error| call_error(&error))?;
    let (content, error_message) = match outcome.is_error {
        false => (Some(outcome.text), None),
        true => (None, Some(outcome.text)),
    };
    let (structured_content, is_error) = (outcome.structured, outcome.is_error);
    Ok(Json(Executed { tool_name, content, structured_content, is_error, error_message }))
}
