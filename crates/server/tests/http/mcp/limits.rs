//! Limits of loops: each ends a loop with a reason, which the model and the client get.

use omnibus_testing::mcp::entry_with;
use serde_json::{Value, json};

use super::{WithTools, trusted_entry, with};

const PATH: &str = "/v1/chat/completions";

fn limited(own: Value) -> WithTools {
    let mut all = json!({"auto": ["s"]});
    all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    with(&[("s", trusted_entry())], all)
}

fn choice(server: &WithTools, script: &str, more: Value) -> Value {
    let mut body =
        json!({"messages": [{"role": "user", "content": format!("script: {script}")}], "tools": "auto"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.answer(PATH, &body)["choices"][0].take()
}

/// A script that calls a tool with another text each time.
fn calls(count: usize) -> String {
    let call = |index: usize| format!(r#"call s__echo {{"text":"{index}"}}"#);
    (0..count).map(call).collect::<Vec<_>>().join(" | ")
}

#[test]
fn rounds_end_with_an_answer() {
    let server = limited(json!({"maxRounds": 2}));
    let choice = choice(&server, &format!("{} | say done", calls(3)), json!({}));
    assert_eq!((&choice["tool_loop_stop"], &choice["finish_reason"]), (&json!("max_rounds"), &json!("stop")));
    assert_eq!(choice["message"]["content"], "done");
    let calls = choice["message"]["mcp_calls"].as_array().unwrap();
    assert_eq!(
        calls.iter().map(|call| call["status"].as_str().unwrap()).collect::<Vec<_>>(),
        ["completed", "completed", "failed"]
    );
    assert!(calls[2]["error"].as_str().unwrap().contains("limit of tool calls"));
}

#[test]
fn a_model_that_goes_on_is_ended() {
    let server = limited(json!({"maxRounds": 1}));
    let choice = choice(&server, &calls(9), json!({}));
    assert_eq!(choice["tool_loop_stop"], "max_rounds");
    assert_eq!(choice["message"]["mcp_calls"].as_array().unwrap().len(), 3);
}

#[test]
fn a_request_may_have_fewer_calls() {
    let server = limited(json!({}));
    let none = choice(&server, &format!("{} | say done", calls(1)), json!({"max_tool_calls": 0}));
    assert_eq!(
        (&none["tool_loop_stop"], &none["message"]["content"]),
        (&json!("max_tool_calls"), &json!("done"))
    );
    let one = choice(&server, &format!("{} | say done", calls(2)), json!({"max_tool_calls": 1}));
    assert_eq!(one["message"]["mcp_calls"][0]["output"], "0");
    assert_eq!(one["tool_loop_stop"], "max_tool_calls");
}

#[test]
fn a_loop_that_repeats_itself_is_ended() {
    let server = limited(json!({}));
    let same = [r#"call s__echo {"text":"x"}"#; 3].join(" | ");
    let choice = choice(&server, &format!("{same} | say done"), json!({}));
    assert_eq!(
        (&choice["tool_loop_stop"], &choice["message"]["content"]),
        (&json!("repeated_call"), &json!("done"))
    );
}

#[test]
fn tokens_and_bytes_are_limits() {
    let tokens = limited(json!({"maxTotalTokens": 50}));
    assert_eq!(
        choice(&tokens, &format!("{} | say done", calls(1)), json!({}))["tool_loop_stop"],
        "max_total_tokens"
    );
    let bytes = limited(json!({"maxResultBytes": 100}));
    let choice = choice(&bytes, &format!("call s__long | {} | say done", calls(1)), json!({}));
    assert_eq!(choice["tool_loop_stop"], "max_result_bytes");
    let shown = choice["message"]["mcp_calls"][0]["output"].as_str().unwrap();
    assert!(shown.len() < 200 && shown.contains("[cut: the result has"), "{shown}");
}

#[test]
fn a_server_that_fails_costs_its_call_alone() {
    let entry = entry_with(&[], json!({"approval": "never", "timeout": 1}));
    let server = with(&[("s", entry), ("t", trusted_entry())], json!({"auto": ["s", "t"]}));
    let script = r#"call s__never & call s__die & call t__echo {"text":"x"} | results"#;
    let choice = choice(&server, script, json!({}));
    let content = choice["message"]["content"].as_str().unwrap();
    assert!(content.contains("`s`") && content.ends_with("call-0-2=x"), "{content}");
    assert_eq!(choice["finish_reason"], "stop");
}
