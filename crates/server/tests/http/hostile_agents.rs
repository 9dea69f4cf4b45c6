//! Invalid requests on `/v1/messages`, `/v1/messages/count_tokens`, `/v1/responses` and `/v1/stream`, each followed by a valid
//! one.

use serde_json::{Value, json};

use super::client::{Reply, post};
use super::stream::Client;
use super::{Server, server};

/// A body that is valid, with one part replaced.
fn replaced(valid: &Value, pointer: &str, value: Value) -> String {
    let mut body = valid.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match body.pointer_mut(parent).unwrap() {
        Value::Object(fields) => _ = fields.insert(name.to_owned(), value),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        other => panic!("{pointer}: {other}"),
    }
    body.to_string()
}

/// Values of every type but these.
fn not(types: &[&str]) -> Vec<Value> {
    let all = [
        ("string", json!("x")),
        ("number", json!(1.5)),
        ("flag", json!(true)),
        ("list", json!([[]])),
        ("object", json!({"a": {}})),
    ];
    all.into_iter().filter(|(name, _)| !types.contains(name)).map(|(_, value)| value).collect()
}

fn of_types(valid: &Value, fields: &[(&str, &[&str])]) -> Vec<String> {
    let bodies = fields
        .iter()
        .flat_map(|(pointer, types)| not(types).into_iter().map(|value| replaced(valid, pointer, value)));
    bodies.collect()
}

fn unparsable() -> Vec<String> {
    let deep = format!("{{\"messages\":{}", "[".repeat(100_000));
    ["", " ", "null", "[]", "\"hi\"", "{", "{}{}", "{\"a\":1,}", "{\"a\":1,\"a\":2}", "{\"a\":NaN}", &deep]
        .map(str::to_owned)
        .into()
}

fn valid_messages() -> Value {
    json!({
        "model": "m", "max_tokens": 4, "stream": false, "temperature": 1, "top_p": 1, "top_k": 5,
        "system": [{"type": "text", "text": "s"}], "stop_sequences": ["a"], "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"}, "tool_choice": {"type": "auto"},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
        ],
    })
}

/// Bodies that are wrong whether or not tokens are generated.
fn conversations() -> Vec<String> {
    let valid = valid_messages();
    let mut bodies = of_types(
        &valid,
        &[
            ("/model", &["string"]),
            ("/max_tokens", &[]),
            ("/stream", &["flag"]),
            ("/temperature", &["number"]),
            ("/system", &["string"]),
            ("/system/0", &[]),
            ("/system/0/text", &["string"]),
            ("/stop_sequences", &[]),
            ("/stop_sequences/0", &["string"]),
            ("/thinking", &[]),
            ("/thinking/type", &[]),
            ("/output_config", &["object"]),
            ("/output_config/effort", &["string"]),
            ("/tool_choice", &[]),
            ("/tool_choice/type", &[]),
            ("/tools", &[]),
            ("/tools/0", &[]),
            ("/tools/0/name", &["string"]),
            ("/tools/0/description", &["string"]),
            ("/tools/0/input_schema", &["object"]),
            ("/messages", &[]),
            ("/messages/0", &[]),
            ("/messages/0/role", &[]),
            ("/messages/0/content", &["string"]),
            ("/messages/1/content/0/id", &["string"]),
            ("/messages/1/content/0/name", &["string"]),
            ("/messages/1/content/0/input", &["object"]),
            ("/messages/2/content/0/type", &["string"]),
            ("/messages/2/content/0/tool_use_id", &["string"]),
            ("/messages/2/content/0/content", &["string"]),
        ],
    );
    for (pointer, value) in [
        ("/max_tokens", json!(0)),
        ("/max_tokens", json!(-1)),
        ("/max_tokens", json!(1e300)),
        ("/top_k", json!(-1)),
        ("/messages", json!([])),
        ("/tools/0/name", json!("")),
        ("/tools/0/name", json!("f".repeat(200))),
        ("/tools", json!(vec![json!({"name": "f", "input_schema": {}}); 1025])),
    ] {
        bodies.push(replaced(&valid, pointer, value));
    }
    bodies
}

/// Bodies whose parameters of generation are wrong.
fn generations() -> Vec<String> {
    let values = [
        ("/max_tokens", json!(5000)),
        ("/temperature", json!(-1)),
        ("/temperature", json!(1e9)),
        ("/top_p", json!(0)),
        ("/top_p", json!(2)),
        ("/stop_sequences", json!([""])),
        ("/stop_sequences", json!(vec!["a"; 65])),
    ];
    values.into_iter().map(|(pointer, value)| replaced(&valid_messages(), pointer, value)).collect()
}

/// Messages of a WebSocket whose requests are wrong.
fn stream_requests() -> Vec<String> {
    let function = json!({"name": "f", "parameters": {"type": "object"}});
    let valid = json!({
        "id": "x", "model": "scripted", "max_tokens": 1, "temperature": 1, "top_p": 1, "stop": ["a"], "seed": 1,
        "n": 1, "logit_bias": {"1": 1}, "stream_options": {"include_usage": true}, "tool_choice": "auto",
        "tools": [{"type": "function", "function": function}], "response_format": {"type": "text"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "t", "content": "r"},
        ],
    });
    let mut bodies = of_types(
        &valid,
        &[
            ("/id", &["string", "number"]),
            ("/cancel", &["string", "number"]),
            ("/model", &["string"]),
            ("/max_tokens", &[]),
            ("/temperature", &["number"]),
            ("/top_p", &["number"]),
            ("/stop", &["string"]),
            ("/stop/0", &["string"]),
            ("/seed", &[]),
            ("/n", &[]),
            ("/logit_bias", &[]),
            ("/stream_options", &[]),
            ("/tool_choice", &[]),
            ("/tools", &[]),
            ("/tools/0/function", &[]),
            ("/response_format", &[]),
            ("/messages", &[]),
            ("/messages/0/role", &[]),
            ("/messages/0/content/0", &[]),
            ("/messages/1/tool_calls", &[]),
            ("/messages/2/tool_call_id", &["string"]),
        ],
    );
    for (pointer, value) in [
        ("/id", json!("x".repeat(300))),
        ("/temperature", json!(-1)),
        ("/top_p", json!(0)),
        ("/max_tokens", json!(-1)),
        ("/max_tokens", json!(1e300)),
        ("/max_tokens", json!(100_000)),
        ("/model", json!("missing")),
        ("/mystery", json!(1)),
        ("/functions", json!({})),
        ("/cancel", json!("nothing")),
    ] {
        bodies.push(replaced(&valid, pointer, value));
    }
    bodies
}

fn responses() -> Vec<String> {
    let valid = json!({
        "model": "m", "max_output_tokens": 4, "stream": false, "temperature": 1, "top_p": 1, "store": false,
        "instructions": "i", "tool_choice": "auto", "parallel_tool_calls": true, "include": [],
        "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "metadata": {"a": "b"},
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
            {"type": "custom", "name": "c"},
        ],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "o"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]},
            {"role": "user", "content": "now"},
        ],
    });
    let mut bodies = of_types(
        &valid,
        &[
            ("/model", &["string"]),
            ("/max_output_tokens", &[]),
            ("/stream", &["flag"]),
            ("/store", &["flag"]),
            ("/temperature", &["number"]),
            ("/instructions", &["string"]),
            ("/tool_choice", &[]),
            ("/parallel_tool_calls", &["flag"]),
            ("/include", &["list"]),
            ("/reasoning", &["object"]),
            ("/reasoning/effort", &["string"]),
            ("/text", &["object"]),
            ("/text/format", &["object"]),
            ("/metadata", &["object"]),
            ("/tools", &[]),
            ("/tools/0", &[]),
            ("/tools/0/type", &["string"]),
            ("/tools/0/name", &["string"]),
            ("/tools/0/parameters", &["object"]),
            ("/tools/1/tools", &[]),
            ("/tools/1/tools/0/name", &["string"]),
            ("/input", &["string"]),
            ("/input/0/role", &[]),
            ("/input/0/content", &["string"]),
            ("/input/0/content/0/type", &["string"]),
            ("/input/0/content/0/text", &["string"]),
            ("/input/1/call_id", &["string"]),
            ("/input/1/name", &["string"]),
            ("/input/1/arguments", &["string"]),
            ("/input/2/call_id", &["string"]),
            ("/input/2/output", &["string"]),
            ("/input/3/summary", &["string"]),
            ("/input/3/type", &["string"]),
        ],
    );
    for (pointer, value) in [
        ("/max_output_tokens", json!(0)),
        ("/max_output_tokens", json!(5000)),
        ("/temperature", json!(-1)),
        ("/top_p", json!(0)),
        ("/background", json!(true)),
        ("/previous_response_id", json!("resp_missing")),
        ("/conversation", json!(7)),
        ("/prompt", json!({"id": "p"})),
        ("/tools/0/name", json!("")),
        ("/input/0/role", json!("wizard")),
    ] {
        bodies.push(replaced(&valid, pointer, value));
    }
    bodies
}

/// Refused with a message, and the server works on.
fn check(server: &Server, path: &str, bodies: &[String], message: fn(&Reply) -> Value) {
    assert!(bodies.len() >= 60, "{path}: {} cases", bodies.len());
    for body in bodies {
        let shown: String = body.chars().take(400).collect();
        let reply = post(server.address, path, body);
        assert_eq!(reply.status, 400, "{path} {shown}: {}", reply.body);
        let message = message(&reply);
        assert!(message.as_str().is_some_and(|text| !text.is_empty()), "{shown}: {}", reply.body);
        let after = r#"{"max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#;
        assert_eq!(post(server.address, "/v1/messages", after).status, 200, "after {shown}");
    }
}

#[test]
fn invalid_messages_are_refused() {
    let server = server();
    let bodies = unparsable().into_iter().chain(conversations()).chain(generations());
    check(&server, "/v1/messages", &bodies.collect::<Vec<String>>(), anthropic_error);
}

#[test]
fn invalid_messages_are_not_counted() {
    let server = server();
    let bodies: Vec<String> = unparsable().into_iter().chain(conversations()).collect();
    check(&server, "/v1/messages/count_tokens", &bodies, anthropic_error);
}

fn anthropic_error(reply: &Reply) -> Value {
    assert_eq!(reply.json()["type"], "error", "{}", reply.body);
    assert_eq!(reply.json()["error"]["type"], "invalid_request_error", "{}", reply.body);
    reply.json()["error"]["message"].clone()
}

#[test]
fn invalid_messages_of_a_stream_are_refused_and_the_connection_stays() {
    let server = server();
    let mut client = Client::connect(&server);
    let bodies: Vec<String> = unparsable().into_iter().chain(stream_requests()).collect();
    assert!(bodies.len() >= 60, "{} cases", bodies.len());
    for body in bodies {
        let shown: String = body.chars().take(300).collect();
        client.send_text(&body);
        let reply = client.next();
        let message = reply["error"]["message"].as_str();
        assert!(message.is_some_and(|text| !text.is_empty()) && reply["done"] == true, "{shown}: {reply}");
        client.ask(json!("after"), "hi");
        assert!(client.until_done("after").len() > 2, "after {shown}");
    }
    client.send_bytes(&[0xff, 0xfe, 0x00]);
    assert_eq!(client.next()["error"]["code"], "invalid_json");
}

#[test]
fn invalid_responses_are_refused() {
    let server = server();
    let bodies: Vec<String> = unparsable().into_iter().chain(responses()).collect();
    check(&server, "/v1/responses", &bodies, |reply| reply.error()["message"].clone());
}

#[test]
fn any_part_may_be_missing_null_or_of_tomorrow() {
    let server = server();
    for (path, body) in [
        (
            "/v1/messages",
            json!({"max_tokens": 1, "system": null, "tools": null, "messages": [{"role": "user", "content": null}, {"role": "user", "content": "hi"}]}),
        ),
        (
            "/v1/messages",
            json!({"max_tokens": 1, "mystery": [1], "tools": [{"type": "novel_20990101", "name": "x"}], "messages": [{"role": "user", "content": [{"type": "novel"}, {"type": "text", "text": "hi"}]}]}),
        ),
        (
            "/v1/responses",
            json!({"max_output_tokens": 1, "tools": [{"type": "novel"}], "input": [{"type": "novel"}, {"role": "assistant", "content": null}, {"role": "user", "content": "hi"}]}),
        ),
    ] {
        let reply = post(server.address, path, &body.to_string());
        assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    }
}
