//! Calls of custom tools in chat completions, and calls in the older shape of `function_call`.

use serde_json::{Value, json};

use super::client::post;
use super::{Server, server};

const PATH: &str = "/v1/chat/completions";

fn answer(server: &Server, prompt: &str, fields: Value) -> Value {
    let reply = post(server.address, PATH, &body(prompt, fields));
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["choices"][0].take()
}

/// The deltas of a stream, and how it ended.
fn deltas(server: &Server, prompt: &str, mut fields: Value) -> (Vec<Value>, Value) {
    fields["stream"] = true.into();
    let reply = post(server.address, PATH, &body(prompt, fields));
    let events = reply.events();
    let chunks = events.iter().filter(|event| *event != "[DONE]");
    let choices: Vec<Value> =
        chunks.map(|event| serde_json::from_str::<Value>(event).unwrap()["choices"][0].take()).collect();
    let end = choices.last().unwrap()["finish_reason"].clone();
    (choices.iter().map(|choice| choice["delta"].clone()).collect(), end)
}

fn body(prompt: &str, fields: Value) -> String {
    let mut body = json!({"messages": [{"role": "user", "content": prompt}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string()
}

#[test]
fn a_custom_tool_is_called_with_text() {
    let server = server();
    let tools = json!({"tools": [{"type": "custom", "custom": {"name": "c"}}]});
    let prompt = r#"call c {"input":"a \"b\"\n"}"#;
    let full = answer(&server, prompt, tools.clone());
    assert_eq!(
        full["message"]["tool_calls"],
        json!([{"id": "call-1", "type": "custom", "custom": {"name": "c", "input": "a \"b\"\n"}}])
    );
    assert_eq!(full["finish_reason"], "tool_calls");
    let (deltas, end) = deltas(&server, prompt, tools);
    let calls: Vec<&Value> =
        deltas.iter().filter_map(|delta| delta.get("tool_calls")).map(|calls| &calls[0]).collect();
    assert_eq!(
        *calls[0],
        json!({"index": 0, "id": "call-1", "type": "custom", "custom": {"name": "c", "input": ""}})
    );
    let input: String = calls.iter().map(|call| call["custom"]["input"].as_str().unwrap()).collect();
    assert_eq!((input.as_str(), end), ("a \"b\"\n", json!("tool_calls")));
    assert!(calls[1..].iter().all(|call| call.get("id").is_none() && call.get("function").is_none()));
}

#[test]
fn input_of_another_form_comes_at_the_end() {
    let server = server();
    let tools = json!({"tools": [{"type": "custom", "custom": {"name": "c"}}]});
    let (deltas, _) = deltas(&server, r#"call c {"x":1,"input":"late"}"#, tools);
    let inputs: Vec<&Value> = deltas.iter().map(|delta| &delta["tool_calls"][0]["custom"]["input"]).collect();
    assert_eq!(inputs.iter().filter(|input| **input == "late").count(), 1);
}

#[test]
fn functions_are_called_in_the_older_shape() {
    let server = server();
    let functions = json!({"functions": [{"name": "f"}]});
    let prompt = r#"call f {"a":1}"#;
    let full = answer(&server, prompt, functions.clone());
    assert_eq!(full["message"]["function_call"], json!({"name": "f", "arguments": "{\"a\":1}"}));
    assert_eq!((full["message"].get("tool_calls"), &full["finish_reason"]), (None, &json!("function_call")));
    let (deltas, end) = deltas(&server, prompt, functions);
    let calls: Vec<&Value> = deltas.iter().filter_map(|delta| delta.get("function_call")).collect();
    assert_eq!(*calls[0], json!({"name": "f", "arguments": ""}));
    let arguments: String = calls.iter().map(|call| call["arguments"].as_str().unwrap()).collect();
    assert_eq!((arguments.as_str(), end), ("{\"a\":1}", json!("function_call")));
}

#[test]
fn the_responses_api_chooses_custom_and_allowed_tools() {
    let server = server();
    let tools = json!([{"type": "custom", "name": "c"}, {"type": "function", "name": "f"}]);
    let choices = [
        json!({"type": "custom", "name": "c"}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "c"}]}),
    ];
    for choice in choices {
        let body = json!({"input": r#"call c {"input":"x"}"#, "tools": tools, "tool_choice": choice});
        let reply = post(server.address, "/v1/responses", &body.to_string()).json();
        assert_eq!(reply["output"][0]["input"], "x", "{reply}");
        assert_eq!(reply["tool_choice"], choice);
    }
    let wrong = json!({"input": "hi", "tools": tools, "tool_choice": {"type": "file_search"}});
    assert_eq!(post(server.address, "/v1/responses", &wrong.to_string()).error()["param"], "tool_choice");
}
