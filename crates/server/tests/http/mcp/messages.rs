//! Anthropic's MCP connector.

use serde_json::{Value, json};

use super::{WithTools, careful, trusted};

const PATH: &str = "/v1/messages";

fn body(script: &str, more: Value) -> Value {
    let mut body = json!({"model": "scripted", "max_tokens": 50, "mcp_servers": [{"type": "url", "name": "s"}],
        "messages": [{"role": "user", "content": format!("script: {script}")}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn answer(server: &WithTools, script: &str, more: Value) -> Value {
    server.answer(PATH, &body(script, more))
}

#[test]
fn one_message_has_the_calls_and_their_results() {
    let server = trusted();
    let message = answer(&server, r#"say hm & call s__add {"a":1,"b":2} | results"#, json!({}));
    assert_eq!(
        message["content"],
        json!([
            {"type": "text", "text": "hm"},
            {"type": "mcp_tool_use", "id": "call-0-1", "name": "add", "server_name": "s", "input": {"a": 1, "b": 2}},
            {"type": "mcp_tool_result", "tool_use_id": "call-0-1", "is_error": false, "content": [{"type": "text", "text": "3"}]},
            {"type": "text", "text": "call-0-1=3"},
        ])
    );
    assert_eq!(message["stop_reason"], "end_turn");
}

#[test]
fn a_stream_has_the_same_blocks() {
    let server = trusted();
    let script = r#"call s__echo {"text":"x"} & call s__fail | say done"#;
    let reply = server.post(PATH, &body(script, json!({"stream": true})));
    let events: Vec<Value> =
        reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let starts: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| &event["content_block"])
        .collect();
    let kinds: Vec<&str> = starts.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["mcp_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_result", "text"]);
    let failed = starts.iter().find(|block| block["is_error"] == true).unwrap();
    assert_eq!(failed["tool_use_id"], "call-0-1");
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("content_block_start"), count("content_block_stop")), (5, 5));
    let delta = events.iter().find(|event| event["delta"]["type"] == "input_json_delta").unwrap();
    assert_eq!(delta["delta"]["partial_json"], r#"{"text":"x"}"#);
}

#[test]
fn earlier_calls_are_calls_in_the_prompt() {
    let server = trusted();
    let first = answer(&server, r#"call s__echo {"text":"x"} | say one"#, json!({}));
    let messages = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": "script: results"}]);
    let second = answer(&server, "", json!({"messages": messages}));
    assert_eq!(second["content"][0]["text"], "call-0-0=x");
}

#[test]
fn toolsets_say_which_tools_there_are() {
    let server = trusted();
    let set = |more: Value| {
        let mut set = json!({"type": "mcp_toolset", "mcp_server_name": "s"});
        set.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"tools": [set]})
    };
    let script = r#"call s__echo {"text":"x"} | results"#;
    let enabled = answer(
        &server,
        script,
        set(json!({"default_config": {"enabled": false}, "configs": {"echo": {"enabled": true}}})),
    );
    assert_eq!(enabled["stop_reason"], "end_turn");
    let disabled = answer(&server, script, set(json!({"configs": {"echo": {"enabled": false}}})));
    assert_eq!(disabled["stop_reason"], "tool_use");
    let unknown =
        server.post(PATH, &body(script, json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "t"}]})));
    assert_eq!(unknown.status, 400, "{}", unknown.body);
}

#[test]
fn tools_that_need_an_approval_are_refused() {
    let server = careful(json!({}));
    let reply = server.post(PATH, &body("say x", json!({})));
    assert!(reply.status == 400 && reply.body.contains("only /v1/responses has"), "{}", reply.body);
}

#[test]
fn a_limit_pauses_the_turn() {
    let server = super::with(&[("s", super::trusted_entry())], json!({"maxToolCalls": 1}));
    let calls: Vec<String> = (0..4).map(|index| format!(r#"call s__echo {{"text":"{index}"}}"#)).collect();
    assert_eq!(answer(&server, &calls.join(" | "), json!({}))["stop_reason"], "pause_turn");
}

#[test]
fn a_server_without_mcp_servers_answers_without_them() {
    let server = super::super::server();
    let reply = super::super::client::post(server.address, PATH, &body("say x", json!({})).to_string());
    assert_eq!((reply.status, &reply.json()["content"][0]["text"]), (200, &json!("x")));
}
