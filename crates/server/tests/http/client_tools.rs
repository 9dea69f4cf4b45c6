//! Calls of tools that the client runs, as the items and blocks that the client expects.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::client::post;
use super::{Server, server};

/// The items of an answer that calls this tool, without their ids.
fn items(server: &Server, tool: &str, arguments: &str) -> Vec<Value> {
    let body = json!({"input": format!("call {tool} {arguments}"), "tools": [{"type": tool}]});
    let reply = post(server.address, "/v1/responses", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut items = reply.json()["output"].as_array().unwrap().clone();
    for item in &mut items {
        let id = item.as_object_mut().unwrap().shift_remove("id").unwrap();
        assert!(id.as_str().is_some_and(|id| id.ends_with("0000") && id.contains('_')), "{id}");
    }
    items
}

fn check(server: &Server, tool: &str, arguments: &str, expected: Expect) {
    expected.assert_eq(&items(server, tool, arguments)[0].to_string());
}

#[test]
fn calls_are_items_of_the_types_that_clients_expect() {
    let server = server();
    check(
        &server,
        "local_shell",
        r#"{"command":["ls"]}"#,
        expect![[
            r#"{"type":"local_shell_call","status":"completed","call_id":"call-1","action":{"type":"exec","command":["ls"],"env":{},"timeout_ms":null,"user":null,"working_directory":null}}"#
        ]],
    );
    check(
        &server,
        "shell",
        r#"{"commands":["ls"],"timeout_ms":5}"#,
        expect![[
            r#"{"type":"shell_call","status":"completed","call_id":"call-1","action":{"commands":["ls"],"timeout_ms":5,"max_output_length":null},"environment":{"type":"local"}}"#
        ]],
    );
    check(
        &server,
        "apply_patch",
        r#"{"type":"create_file","path":"a","diff":"+x"}"#,
        expect![[
            r#"{"type":"apply_patch_call","status":"completed","call_id":"call-1","operation":{"type":"create_file","path":"a","diff":"+x"}}"#
        ]],
    );
    check(
        &server,
        "computer",
        r#"{"actions":[{"type":"screenshot"}]}"#,
        expect![[
            r#"{"type":"computer_call","status":"completed","call_id":"call-1","actions":[{"type":"screenshot"}],"pending_safety_checks":[]}"#
        ]],
    );
}

#[test]
fn a_streamed_call_is_added_with_its_fields() {
    let server = server();
    let body = json!({"input": r#"call apply_patch {"type":"delete_file","path":"a"}"#, "stream": true,
        "tools": [{"type": "apply_patch"}]});
    let reply = post(server.address, "/v1/responses", &body.to_string());
    let events: Vec<Value> =
        reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.output_item.done",
            "response.completed"
        ]
    );
    for (event, status) in [(&events[2], "in_progress"), (&events[3], "completed")] {
        assert_eq!(event["item"]["operation"], json!({"type": "delete_file", "path": "a"}));
        assert_eq!(event["item"]["status"], status);
        assert!(event["item"]["id"].as_str().unwrap().starts_with("apc_"));
    }
}

#[test]
fn a_call_is_continued_by_a_reference_to_its_item() {
    let server = server();
    let body = json!({"input": r#"call shell {"commands":["ls"]}"#, "tools": [{"type": "shell"}]});
    let first = post(server.address, "/v1/responses", &body.to_string()).json();
    let input = json!([{"type": "item_reference", "id": first["output"][0]["id"]},
        {"type": "shell_call_output", "call_id": "call-1", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        {"role": "user", "content": "so"}]);
    let second =
        post(server.address, "/v1/responses", &json!({"input": input, "max_output_tokens": 1}).to_string());
    assert_eq!(second.status, 200, "{}", second.body);
}

#[test]
fn anthropics_tools_are_called_by_their_names() {
    let server = server();
    let content = r#"call bash {"command":"ls"}"#;
    let body = |tool: Value| {
        json!({"max_tokens": 9, "messages": [{"role": "user", "content": content}], "tools": [tool]})
            .to_string()
    };
    let called =
        post(server.address, "/v1/messages", &body(json!({"type": "bash_20250124", "name": "bash"})));
    assert_eq!(
        called.json()["content"][0],
        json!({"type": "tool_use", "id": "call-1", "name": "bash", "input": {"command": "ls"}})
    );
    let refused = post(server.address, "/v1/messages", &body(json!({"type": "computer_toolset_20260801"})));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("computer_toolset_20260801"), "{}", refused.body);
}
