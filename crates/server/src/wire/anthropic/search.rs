//! Blocks of the search of the web in earlier messages: those that this server made are calls and results, as the model made
//! and read them.

use std::collections::BTreeMap;

use omnibus_mcp::web_search::{Page, WEB_SEARCH, text};
use serde_json::{Value, json};

/// What the ids of these blocks begin with.
const PREFIX: &str = "srvtoolu_";

/// What reads an opaque text of this server.
pub type Decode = fn(&str) -> Option<String>;

/// The id of the blocks of a call.
pub fn block_id(call_id: &str) -> String {
    format!("{PREFIX}{call_id}")
}

/// What the model read of a page.
pub fn piece(page: &Page) -> String {
    text(std::slice::from_ref(page))
}

/// What the model read of the searches of a message, by the ids of their blocks. Searches of other servers are not in it.
pub fn results(blocks: &[Value], decode: Decode) -> BTreeMap<String, String> {
    blocks.iter().filter_map(|block| Some((id(block, "tool_use_id")?, result(block, decode)?))).collect()
}

fn result(block: &Value, decode: Decode) -> Option<String> {
    if block.get("type").and_then(Value::as_str) != Some("web_search_tool_result") {
        return None;
    }
    let content = block.get("content")?;
    if let Some(code) = content.get("error_code").and_then(Value::as_str) {
        let is_ours = id(block, "tool_use_id")?.starts_with(PREFIX);
        return is_ours.then(|| format!("The search failed: {code}"));
    }
    let piece = |page: &Value| decode(page.get("encrypted_content")?.as_str()?);
    let pieces: Option<Vec<String>> = content.as_array()?.iter().map(piece).collect();
    pieces.filter(|pieces| !pieces.is_empty()).map(|pieces| pieces.join("\n\n"))
}

/// The call of a search whose result is known.
pub fn call(block: &Value, results: &BTreeMap<String, String>) -> Option<Value> {
    let is_call = block.get("type").and_then(Value::as_str) == Some("server_tool_use");
    let id = id(block, "id").filter(|id| is_call && results.contains_key(id))?;
    let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
    Some(json!({"type": "tool_use", "id": plain(&id), "name": WEB_SEARCH, "input": input}))
}

/// The result of a search, as the model read it.
pub fn read(block: &Value, results: &BTreeMap<String, String>) -> Option<Value> {
    let is_result = block.get("type").and_then(Value::as_str) == Some("web_search_tool_result");
    let id = id(block, "tool_use_id").filter(|_| is_result)?;
    let text = results.get(&id)?;
    Some(json!({"type": "tool_result", "tool_use_id": plain(&id), "content": text}))
}

fn plain(id: &str) -> &str {
    id.strip_prefix(PREFIX).unwrap_or(id)
}

fn id(block: &Value, name: &str) -> Option<String> {
    block.get(name).and_then(Value::as_str).map(str::to_owned)
}
