//! Tool calls and reasoning through chat completions, with the real engine and a model that says given texts.

use serde_json::{Value, json};

use super::client::{Reply, post};
use super::process::{Server, run, text};
use super::scripted_model::{FILE, server};

const CHAT: &str = "/v1/chat/completions";

fn body(messages: Value) -> Value {
    let parameters =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tool = json!({"type": "function", "function": {"name": "read_file", "parameters": parameters}});
    json!({"messages": messages, "tools": [tool]})
}

fn ask(server: &Server, body: &Value) -> Reply {
    let reply = post(server.address, CHAT, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply
}

fn question() -> Value {
    json!([{"role": "user", "content": "Which word is in the file?"}])
}

fn arguments() -> String {
    json!({"path": FILE}).to_string()
}

#[test]
fn a_call_and_its_result_make_two_turns() {
    let server = server("two-turns", &[]);
    let mut messages = question();
    let first = ask(&server, &body(messages.clone())).json();
    let choice = &first["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{first}");
    let message = &choice["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["reasoning_content"], "The tool 'read_file' gives what is missing.");
    assert_eq!(message["reasoning"], message["reasoning_content"]);
    let call = &message["tool_calls"][0];
    assert_eq!(call["type"], "function");
    assert_eq!(call["function"], json!({"name": "read_file", "arguments": arguments()}));
    let usage = &first["usage"];
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!(reasoning > 0 && reasoning < usage["completion_tokens"].as_u64().unwrap(), "{usage}");

    let id = call["id"].as_str().unwrap();
    messages.as_array_mut().unwrap().push(message.clone());
    messages.as_array_mut().unwrap().push(
        json!({"role": "tool", "tool_call_id": id, "content": [{"type": "text", "text": "PINEAPPLE"}]}),
    );
    let second = ask(&server, &body(messages)).json();
    assert_eq!(second["choices"][0]["message"]["content"], "The file says that the word is PINEAPPLE.");
    assert_eq!(second["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_streamed_call_has_an_id_an_index_and_one_json() {
    let server = server("stream", &[]);
    let mut body = body(question());
    body["stream"] = true.into();
    let chunks = ask(&server, &body).chunks();
    let choices: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]).collect();
    let (last, others) = choices.split_last().unwrap();
    assert_eq!(last["finish_reason"], "tool_calls");
    assert!(others.iter().all(|choice| choice["finish_reason"].is_null()));
    let calls: Vec<&Value> =
        choices.iter().filter_map(|choice| choice["delta"]["tool_calls"].get(0)).collect();
    assert!(calls.iter().all(|call| call["index"] == 0), "{calls:?}");
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(calls[0]["function"]["name"], "read_file");
    let json: String = calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!(json, arguments());
    assert!(calls.len() > 2, "arguments stream as they come: {calls:?}");
}

#[test]
fn a_format_can_be_switched_off() {
    let server = server("off", &["--tool-call-format", "none", "--reasoning-format", "none"]);
    let reply = ask(&server, &body(question())).json();
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(content.starts_with("<think>") && content.ends_with("</tool_call>"), "{content}");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[test]
fn choices_have_their_own_calls_and_one_call_may_be_the_limit() {
    let server = server("choices", &[]);
    let mut body = body(question());
    body["n"] = 2.into();
    body["parallel_tool_calls"] = false.into();
    let reply = ask(&server, &body).json();
    let ids: Vec<&Value> = [0, 1].map(|at| &reply["choices"][at]["message"]["tool_calls"][0]["id"]).into();
    assert!(ids[0].is_string() && ids[0] != ids[1], "{reply}");
    assert_eq!(reply["choices"][1]["message"]["tool_calls"][0]["function"]["arguments"], arguments());
}

#[test]
fn formats_are_listed_and_unknown_ones_refused() {
    let listed = text(&run(&["models", "--formats"]).stdout);
    assert!(listed.contains("hermes") && listed.contains("--reasoning-format"), "{listed}");
    let json: Value = serde_json::from_slice(&run(&["models", "--formats", "--json"]).stdout).unwrap();
    assert!(json["tool_calls"].as_array().unwrap().len() > 40, "{json}");
    for flag in ["--tool-call-format", "--reasoning-format"] {
        let refused = run(&["generate", "-p", "hi", flag, "missing"]);
        assert_eq!(refused.status.code(), Some(2));
        let error = text(&refused.stderr);
        assert!(error.contains(&format!("{flag}: there is no format `missing`")), "{error}");
    }
}

#[test]
fn a_spent_reasoning_budget_ends_the_reasoning() {
    for arguments in [&["--in-process"][..], &[]] {
        let server = server("budget", arguments);
        let mut body = body(question());
        body["thinking_token_budget"] = 4.into();
        let reply = ask(&server, &body).json();
        let message = &reply["choices"][0]["message"];
        let reasoning = message["reasoning_content"].as_str().unwrap();
        let whole = "The tool 'read_file' gives what is missing.";
        assert!(whole.starts_with(reasoning) && reasoning.len() < whole.len(), "{reply}");
        assert_eq!(message["content"], "A short answer.");
        let usage = &reply["usage"];
        // Four tokens and the closing one.
        assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 5, "{usage}");
        assert!(usage["completion_tokens"].as_u64().unwrap() > 5);
        body["thinking_token_budget"] = 400.into();
        assert_eq!(ask(&server, &body).json()["choices"][0]["message"]["reasoning_content"], whole);
    }
}
