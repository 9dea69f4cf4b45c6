//! `POST /v1/responses/compact`, with a scripted engine.

use serde_json::{Value, json};

use super::client::post;
use super::server;

const PATH: &str = "/v1/responses/compact";

#[test]
fn a_compaction_has_the_users_messages_and_a_summary_that_comes_back() {
    let server = server();
    let input = json!([
        {"role": "user", "content": "tuesday"},
        {"role": "assistant", "content": "agreed"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"role": "user", "content": [{"type": "input_text", "text": "support first"}]},
    ]);
    let reply = post(server.address, PATH, &json!({"model": "m", "input": input}).to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let compacted = reply.json();
    assert_eq!(compacted["object"], "response.compaction");
    assert!(compacted["usage"]["output_tokens"].as_u64() > Some(0), "{compacted}");
    let output = compacted["output"].as_array().unwrap();
    let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "message", "compaction"]);
    assert_eq!(output[0]["content"][0]["text"], "tuesday");
    assert!(output.iter().all(|item| item["id"].is_string()));
    let mut next = output.clone();
    next.push(json!({"role": "user", "content": "all of it"}));
    let body = json!({"model": "m", "input": next, "max_output_tokens": 2});
    let continued = post(server.address, "/v1/responses", &body.to_string()).json();
    // The messages, and the summary under its heading.
    let summary = compacted["usage"]["output_tokens"].as_u64().unwrap();
    assert_eq!(continued["usage"]["input_tokens"].as_u64(), Some(3 + 3 + 7 + summary), "{continued}");
}

#[test]
fn a_stored_response_is_compacted_by_its_id() {
    let server = server();
    let stored = post(server.address, "/v1/responses", r#"{"input":"monday"}"#).json();
    let body = json!({"model": "m", "previous_response_id": stored["id"]});
    let compacted = post(server.address, PATH, &body.to_string()).json();
    assert_eq!(compacted["output"][0]["content"][0]["text"], "monday", "{compacted}");
}

#[test]
fn what_cannot_be_compacted_is_refused_by_name() {
    let server = server();
    let refused = |path: &str, body: &str| {
        let reply = post(server.address, path, body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        reply.error()["param"].clone()
    };
    assert_eq!(refused(PATH, r#"{"input":"x"}"#), "model");
    assert_eq!(refused(PATH, r#"{"model":"m"}"#), "input");
    assert_eq!(refused(PATH, r#"{"model":"m","previous_response_id":"resp_1"}"#), "previous_response_id");
    let foreign = json!({"input": [{"type": "compaction", "encrypted_content": "gAAAA"}]});
    assert_eq!(refused("/v1/responses", &foreign.to_string()), "input.encrypted_content");
    let orphan = json!({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]});
    assert_eq!(refused("/v1/responses", &orphan.to_string()), "input[0].call_id");
}
