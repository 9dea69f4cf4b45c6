//! Blocks of the MCP connector: calls that the server makes, and their results.

use omnibus_mcp::Outcome;
use serde_json::{Map, Value, json};

use crate::response::{StartedCall, ToolEvent};
use crate::wire::anthropic::response::Block;

/// The block of a call that begins.
pub fn call(call: StartedCall) -> Block {
    let StartedCall { id, label: server_name, name, .. } = call;
    Block::McpToolUse { id, name, server_name, input: Value::Object(Map::new()) }
}

/// The block of a result.
pub fn result(tool_use_id: String, outcome: Outcome) -> Block {
    let content = vec![json!({"type": "text", "text": outcome.text})];
    Block::McpToolResult { tool_use_id, is_error: outcome.is_error, content }
}

/// Adds an event to the blocks of a whole message.
pub fn add(event: ToolEvent, arguments: &mut String, blocks: &mut Vec<Block>) {
    match event {
        ToolEvent::Started(started) => {
            arguments.clear();
            blocks.push(call(started));
        }
        ToolEvent::Arguments { json, .. } => arguments.push_str(&json),
        ToolEvent::Called { .. } => {
            if let (Some(Block::McpToolUse { input, .. }), Ok(read @ Value::Object(_))) =
                (blocks.last_mut(), serde_json::from_str(arguments))
            {
                *input = read;
            }
        }
        ToolEvent::Ended { id, outcome } => blocks.push(result(id, outcome)),
        ToolEvent::Listed(_)
        | ToolEvent::SearchStarted { .. }
        | ToolEvent::SearchEnded { .. }
        | ToolEvent::NeedsApproval { .. }
        | ToolEvent::Limited(_)
        | ToolEvent::Stopped(_) => {}
    }
}
