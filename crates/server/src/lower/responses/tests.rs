//! Lowering of Responses requests.

mod client_tools;
mod text;

use expect_test::{Expect, expect};
use omnibus_engine::{CallRule, InputGrammar, Tool, ToolPlace};
use serde_json::json;

use super::*;

fn lowered(body: Value) -> Result<(Chat, Toolbox), String> {
    let caller = Caller { response_id: "resp_1".into(), tenant: "key-1".into() };
    let wire = ResponsesRequest::read(body).and_then(|wire| {
        let items = ResponsesRequest::items(&wire.input)?;
        lower(&wire, items, None, &caller)
    });
    let (mut batch, toolbox) =
        wire.map_err(|error| format!("{}: {}", error.param().unwrap_or_default(), error.message()))?;
    let request = batch.prompts.remove(0);
    match (request.input, request.output) {
        (Input::Chat(chat), OutputMode::Message { .. }) => Ok((chat, toolbox)),
        other => Err(format!("{other:?}")),
    }
}

/// The messages, a line each.
fn check(body: Value, expected: Expect) {
    let lines = match lowered(body) {
        Ok((chat, ..)) => chat.messages.iter().map(line).collect::<Vec<_>>().join("\n"),
        Err(error) => error,
    };
    expected.assert_eq(&lines);
}

fn line(message: &Message) -> String {
    let part = |part: &ContentPart| match part {
        ContentPart::Text(text) => format!("{text:?}"),
        ContentPart::Reasoning(text) => format!("reasoning {text:?}"),
        ContentPart::ToolCall(ToolCall { id, name, arguments }) => format!("call {id} {name} {arguments:?}"),
        ContentPart::ToolResult(ToolResult { call_id, text }) => format!("result {call_id} {text:?}"),
        other => format!("{other:?}"),
    };
    let parts: Vec<String> = message.content.iter().map(part).collect();
    format!("{}: {}", message.role.name(), parts.join(", "))
}

/// Names of the tools that the template shows, and of all.
fn names(chat: &Chat) -> (Vec<&str>, Vec<&str>) {
    let shown = chat.tools.iter().filter(|tool| tool.place == ToolPlace::Template);
    (
        shown.map(|tool| tool.name.as_str()).collect(),
        chat.tools.iter().map(|tool| tool.name.as_str()).collect(),
    )
}

#[test]
fn every_item_of_a_conversation_becomes_a_message() {
    check(
        json!({"instructions": "be kind", "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "base"}]},
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "short"}],
                "content": null, "encrypted_content": opaque::encode("long")},
            {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "only"}]},
            {"type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "so", "annotations": []}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
            {"type": "function_call_output", "call_id": "c1", "output": [
                {"type": "input_text", "text": "one"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin\n"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
            {"type": "item_of_tomorrow", "text": "?"},
        ]}),
        expect![[r#"
            system: "be kind"
            system: "base"
            user: "hi"
            assistant: reasoning "long"
            assistant: reasoning "only"
            assistant: "so"
            assistant: call c1 f Json("{\"a\": 1}")
            tool: result c1 "one", Image(MediaIndex(0))
            assistant: call c2 apply_patch Json("{\"input\":\"*** Begin\\n\"}")
            tool: result c2 "done""#]],
    );
}

#[test]
fn tools_have_unique_names_and_keep_their_kind() {
    let function = |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}, "strict": false});
    let (chat, toolbox) = lowered(json!({"input": "hi", "tools": [
        function("run"),
        {"type": "namespace", "name": "agents", "description": "A.", "tools": [function("close"), function("run")]},
        {"type": "custom", "name": "apply_patch", "description": "P.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
        {"type": "tool_search", "execution": "client", "description": "S.", "parameters": {"type": "object"}},
        {"type": "web_search", "external_web_access": false},
    ]}))
    .unwrap();
    assert_eq!(names(&chat).0, ["run", "close", "agents__run", "apply_patch", "tool_search"]);
    assert_eq!(names(&chat).1.len(), 5);
    let inside = |name: &str| ToolKind::Function { name: name.into(), namespace: Some("agents".into()) };
    assert_eq!(toolbox.kind("close"), inside("close"));
    assert_eq!(toolbox.kind("agents__run"), inside("run"));
    assert_eq!(
        (toolbox.kind("apply_patch"), toolbox.kind("tool_search")),
        (ToolKind::Custom, ToolKind::Search)
    );
    let patch = &chat.tools[3];
    expect![[r#"{"type":"function","function":{"name":"apply_patch","description":"P.","parameters":{"type":"object","properties":{"input":{"type":"string","description":"Text of this grammar:\nstart: X"}},"required":["input"]}}}"#]]
        .assert_eq(&patch.definition().to_string());
    assert_eq!(patch.rule, CallRule::Input(InputGrammar::Lark("start: X".into())));
}

#[test]
fn strict_functions_are_strict_where_calls_are_made_and_the_prompt_stays() {
    let tool = |strict: Value| json!({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": strict});
    let lower = |strict| {
        let (chat, _) = lowered(json!({"input": "hi", "tools": [tool(strict)]})).unwrap();
        chat.tools
    };
    let (strict, lenient) = (lower(json!(true)), lower(json!(null)));
    assert_eq!(Tool::shown_by_template(&strict), Tool::shown_by_template(&lenient));
    assert_eq!((&strict[0].rule, &lenient[0].rule), (&CallRule::Strict, &CallRule::Lenient));
    check(
        json!({"input": "hi", "tools": [{"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "bnf", "definition": "x"}}]}),
        expect!["tools[0].format.syntax: `tools[0].format.syntax` must be lark or regex"],
    );
}

#[test]
fn found_tools_are_shown_at_their_place_and_can_be_called() {
    let search = json!({"type": "tool_search", "execution": "client", "parameters": {"type": "object"}});
    let found = json!([{"type": "namespace", "name": "notes", "tools": [
        {"type": "function", "name": "add_note", "parameters": {"type": "object"}, "defer_loading": true}]}]);
    let (chat, toolbox) = lowered(json!({"tools": [search], "input": [
        {"role": "user", "content": "hi"},
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "notes"}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": found},
        {"type": "function_call", "call_id": "c2", "name": "add_note", "namespace": "notes", "arguments": "{}"},
    ]}))
    .unwrap();
    assert_eq!(names(&chat), (vec!["tool_search"], vec!["tool_search", "add_note"]));
    assert_eq!(
        toolbox.kind("add_note"),
        ToolKind::Function { name: "add_note".into(), namespace: Some("notes".into()) }
    );
    let lines: Vec<String> = chat.messages[1..].iter().map(line).collect();
    expect![[r#"
        assistant: call c1 tool_search Json("{\"query\":\"notes\"}")
        tool: result c1 "{\"name\":\"add_note\",\"parameters\":{\"type\":\"object\"}}"
        assistant: call c2 add_note Json("{}")"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn invalid_requests_are_refused_by_name() {
    check(json!({}), expect!["input: `input` is missing"]);
    check(json!({"input": 3}), expect!["input: `input` must be a string or a list of items, not an integer"]);
    check(json!({"input": []}), expect!["input: `input` must have at least one item"]);
    check(
        json!({"input": [{"role": "wizard", "content": "hi"}]}),
        expect!["input[0].role: `input[0].role` must be system, developer, user or assistant, not `wizard`"],
    );
    check(
        json!({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}),
        expect!["input[0].call_id: `input[0].call_id` is missing"],
    );
    check(
        json!({"input": "hi", "background": true, "store": false}),
        expect!["background: `background` needs `store` to be true"],
    );
    check(
        json!({"input": "hi", "conversation": {}}),
        expect!["conversation.id: `conversation.id` is missing"],
    );
    check(
        json!({"input": "hi", "tool_choice": "required"}),
        expect!["tool_choice: `tool_choice` needs `tools`"],
    );
}
