//! Anthropic's MCP connector: `mcp_servers`, toolsets in `tools`, and its blocks in earlier messages.

use std::collections::{BTreeMap, BTreeSet};

use omnibus_mcp::offered;
use serde_json::{Map, Value, json};

use super::search::{self, Decode};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured};
use crate::wire::mcp::{Filter, McpServer, RemotePlace, RequestedApproval, SERVERS_MAX};

/// Fields of a server.
pub const SERVER: &[Field] = &[
    honoured("type", "`url`"),
    honoured("name", "its name; of a server of `--mcp-config` without `url`"),
    honoured("url", "with `--allow-mcp-url`: where it is"),
    honoured("authorization_token", "with `url`: the token that it gets"),
    honoured("tool_configuration", "`enabled` and `allowed_tools`, without a toolset"),
];

/// Fields of `tool_configuration`.
pub const CONFIGURATION: &[Field] = &[
    honoured("enabled", "false: it has no tools"),
    honoured("allowed_tools", "the names of the tools that are offered"),
];

/// Fields of a toolset.
pub const TOOLSET: &[Field] = &[
    honoured("type", "`mcp_toolset`"),
    honoured("mcp_server_name", "the server"),
    honoured("default_config", "`enabled` of tools without a setting of their own"),
    honoured("configs", "`enabled` by tool"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("tools", "the server lists its tools"),
];

/// Reads the servers of a request, and which of their tools its toolsets enable.
pub fn read(fields: &mut Fields, tools: &[Value]) -> Result<Vec<McpServer>, ApiError> {
    let list = fields.list("mcp_servers")?.unwrap_or_default();
    if list.len() > SERVERS_MAX {
        let message = format!("mcp_servers: at most {SERVERS_MAX} entries");
        return Err(ApiError::invalid("mcp_servers", message));
    }
    let mut toolsets = toolsets(tools)?;
    let has_toolsets = !toolsets.is_empty();
    let mut servers: Vec<McpServer> = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        let at = format!("mcp_servers[{index}]");
        let Some(server) = server(value, &at)? else { continue };
        if servers.iter().any(|other| other.label == server.label) {
            return Err(ApiError::invalid(
                format!("{at}.name"),
                format!("{at}.name: is the name of another server, too"),
            ));
        }
        match (toolsets.remove(&server.label), has_toolsets) {
            (Some(allowed), _) => servers.push(McpServer { allowed, ..server }),
            (None, false) => servers.push(server),
            // Without a toolset beside those of others, it has no tools.
            (None, true) => {}
        }
    }
    // A toolset alone names a server of the configuration.
    servers.extend(toolsets.into_iter().map(|(label, allowed)| {
        let (at, approval) = ("tools".to_owned(), RequestedApproval::Never);
        McpServer { at, label, remote: None, allowed, approval }
    }));
    Ok(servers)
}

/// `None` for one that is disabled.
fn server(value: Value, at: &str) -> Result<Option<McpServer>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[SERVER])?;
    fields.text("type")?;
    let name = fields.text("name")?;
    let label = fields.required("name", name)?;
    let (url, token) = (fields.text("url")?, fields.text("authorization_token")?);
    let remote = url.map(|url| {
        let headers = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        RemotePlace { url, headers: headers.into_iter().collect() }
    });
    let mut allowed = Filter::default();
    if let Some(value) = fields.value("tool_configuration") {
        let mut inner = Fields::tolerant(value, &fields.at("tool_configuration"), &[CONFIGURATION])?;
        if inner.flag("enabled")? == Some(false) {
            return Ok(None);
        }
        let names = inner.list("allowed_tools")?;
        allowed.names =
            names.map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    }
    let approval = RequestedApproval::Never;
    Ok(Some(McpServer { at: at.to_owned(), label, remote, allowed, approval }))
}

/// What the toolsets enable, by server.
fn toolsets(tools: &[Value]) -> Result<BTreeMap<String, Filter>, ApiError> {
    let mut found = BTreeMap::new();
    for (index, value) in tools.iter().enumerate() {
        if value.get("type").and_then(Value::as_str) != Some("mcp_toolset") {
            continue;
        }
        let mut fields = Fields::tolerant(value.clone(), &format!("tools[{index}]"), &[TOOLSET])?;
        let name = fields.text("mcp_server_name")?;
        let name = fields.required("mcp_server_name", name)?;
        let is_enabled = |config: Option<&Value>| config?.get("enabled")?.as_bool();
        let default = is_enabled(fields.value("default_config").as_ref()).unwrap_or(true);
        let (mut on, mut off) = (BTreeSet::new(), BTreeSet::new());
        for (tool, config) in fields.object("configs")?.unwrap_or_default() {
            match is_enabled(Some(&config)).unwrap_or(default) {
                true => on.insert(tool),
                false => off.insert(tool),
            };
        }
        let filter = match default {
            true => Filter { except: off, ..Filter::default() },
            false => Filter { names: Some(on), ..Filter::default() },
        };
        found.insert(name, filter);
    }
    Ok(found)
}

/// Messages whose blocks of the connector and of the search of the web are calls of tools and their results, as the model made and
/// read them.
pub fn history(messages: Vec<Value>, decode: Decode) -> Vec<Value> {
    messages.into_iter().flat_map(|message| split(message, decode)).collect()
}

/// An answer with results inside becomes several messages.
fn split(message: Value, decode: Decode) -> Vec<Value> {
    let Some(blocks) = message.get("content").and_then(Value::as_array) else { return vec![message] };
    let searches = search::results(blocks, decode);
    let is_ours = |block: &Value| is(block, "mcp_tool_use") || is(block, "mcp_tool_result");
    if searches.is_empty() && !blocks.iter().any(is_ours) {
        return vec![message];
    }
    let (mut messages, mut answer, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        let read = search::read(block, &searches);
        if let Some(result) = read.or_else(|| is(block, "mcp_tool_result").then(|| result(block))) {
            push(&mut messages, "assistant", &mut answer);
            results.push(result);
            continue;
        }
        push(&mut messages, "user", &mut results);
        let made = search::call(block, &searches);
        let made = made.or_else(|| is(block, "mcp_tool_use").then(|| call(block)));
        answer.push(made.unwrap_or_else(|| block.clone()));
    }
    push(&mut messages, "assistant", &mut answer);
    push(&mut messages, "user", &mut results);
    messages
}

fn push(messages: &mut Vec<Value>, role: &str, blocks: &mut Vec<Value>) {
    if !blocks.is_empty() {
        messages.push(json!({"role": role, "content": std::mem::take(blocks)}));
    }
}

fn is(block: &Value, kind: &str) -> bool {
    block.get("type").and_then(Value::as_str) == Some(kind)
}

fn call(block: &Value) -> Value {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    let input = block.get("input").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json!({"type": "tool_use", "id": text("id"), "name": offered(text("server_name"), text("name")), "input": input})
}

fn result(block: &Value) -> Value {
    let id = block.get("tool_use_id").cloned().unwrap_or_default();
    let content = block.get("content").cloned().unwrap_or_default();
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_results_inside_becomes_several_messages() {
        let message = json!({"role": "assistant", "content": [
            {"type": "text", "text": "a"},
            {"type": "mcp_tool_use", "id": "1", "name": "echo", "server_name": "s", "input": {"x": 1}},
            {"type": "mcp_tool_result", "tool_use_id": "1", "is_error": false, "content": "y"},
            {"type": "text", "text": "b"}]});
        let messages = history(vec![json!({"role": "user", "content": "hi"}), message], |_| None);
        assert_eq!(
            messages.iter().map(|message| message["role"].as_str().unwrap()).collect::<Vec<_>>(),
            ["user", "assistant", "user", "assistant"]
        );
        assert_eq!(
            messages[1]["content"][1],
            json!({"type": "tool_use", "id": "1", "name": "s__echo", "input": {"x": 1}})
        );
        assert_eq!(messages[2]["content"][0]["type"], "tool_result");
        assert_eq!(messages[3]["content"], json!([{"type": "text", "text": "b"}]));
    }

    #[test]
    fn toolsets_enable_tools() {
        let tools = [
            json!({"type": "mcp_toolset", "mcp_server_name": "a", "configs": {"x": {"enabled": false}}}),
            json!({"type": "mcp_toolset", "mcp_server_name": "b", "default_config": {"enabled": false}, "configs": {"x": {"enabled": true}}}),
        ];
        let found = toolsets(&tools).unwrap();
        assert!(!found["a"].selects("x", false) && found["a"].selects("y", false));
        assert!(found["b"].selects("x", false) && !found["b"].selects("y", false));
    }
}
