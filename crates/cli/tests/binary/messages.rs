//! Anthropic's messages with the real engine and a model that says given texts: two turns of an agent, and what of the
//! second turn's prompt is cached.

use serde_json::{Value, json};

use super::client::{Reply, post};
use super::process::Server;
use super::scripted_model::{FILE, server};

const PATH: &str = "/v1/messages?beta=true";

fn body(messages: Value, billing: u32) -> Value {
    let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"file_path": {"type": "string"}}, "required": ["file_path"], "additionalProperties": false});
    let deferred = json!({"name": "Later", "description": "L.", "input_schema": {"type": "object"}, "defer_loading": true});
    json!({
        "model": "claude-sonnet-4-5", "max_tokens": 100, "thinking": {"type": "adaptive"},
        "system": [
            {"type": "text", "text": format!("x-anthropic-billing-header: cc_version={billing};")},
            {"type": "text", "text": "You read files. ".repeat(60), "cache_control": {"type": "ephemeral"}},
        ],
        "messages": messages,
        "tools": [{"name": "Read", "description": "Reads a file.", "input_schema": schema}, deferred],
    })
}

fn ask(server: &Server, path: &str, body: &Value) -> Reply {
    let reply = post(server.address, path, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply
}

fn input_tokens(usage: &Value) -> (u64, u64) {
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    (usage["input_tokens"].as_u64().unwrap() + cached, cached)
}

#[test]
fn two_turns_share_their_prefix() {
    let server = server("messages", &[]);
    let reminder =
        json!([{"type": "text", "text": "The day is Monday.", "cache_control": {"type": "ephemeral"}}]);
    let mut messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "Which word is in the file?"}]},
        {"role": "system", "content": reminder},
    ]);
    let first = ask(&server, PATH, &body(messages.clone(), 1)).json();
    assert_eq!(first["stop_reason"], "tool_use", "{first}");
    let kinds: Vec<&str> =
        first["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "tool_use"]);
    let call = &first["content"][1];
    assert_eq!((&call["name"], &call["input"]), (&json!("Read"), &json!({"file_path": FILE})));
    let counted = ask(&server, "/v1/messages/count_tokens", &body(messages.clone(), 2)).json();
    let (prompt, _) = input_tokens(&first["usage"]);
    assert_eq!(counted["input_tokens"], prompt, "what is counted is billed");

    // The mark moves, the billing header changes, and the reminder is a string now.
    let list = messages.as_array_mut().unwrap();
    list[1]["content"] = "The day is Monday.".into();
    list.push(json!({"role": "assistant", "content": first["content"]}));
    let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "PINEAPPLE", "cache_control": {"type": "ephemeral"}});
    list.push(json!({"role": "user", "content": [result]}));
    let second = ask(&server, PATH, &body(messages, 3)).json();
    assert_eq!(second["stop_reason"], "end_turn");
    assert_eq!(
        second["content"],
        json!([{"type": "text", "text": "The file says that the word is PINEAPPLE."}])
    );
    let (_, cached) = input_tokens(&second["usage"]);
    // The prompt's last tokens open the answer; the history closes them differently.
    assert!(cached as f64 >= 0.98 * (prompt - 4) as f64, "{cached} of {prompt}");
}
