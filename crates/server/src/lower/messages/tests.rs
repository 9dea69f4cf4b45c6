//! Lowering of Anthropic's requests: the conversation as a chat template gets it.

mod client_tools;
mod rendered;

use expect_test::{Expect, expect};
use omnibus_engine::{CallLimit, ToolResult};

use serde_json::json;

use super::*;
use crate::wire::anthropic::Purpose;

fn read(body: Value) -> Result<Request, String> {
    let caller = Caller { response_id: "msg_1".into(), tenant: "key-1".into() };
    let wire = MessagesRequest::read(body, Purpose::Generate);
    wire.map(|wire| lower(wire, None, &caller).prompts.remove(0))
        .map_err(|error| format!("{}: {}", error.param().unwrap_or_default(), error.message()))
}

fn with(messages: Value, fields: Value) -> Value {
    let mut body = json!({"max_tokens": 9, "messages": messages});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn chat_of(messages: Value, fields: Value) -> Chat {
    match read(with(messages, fields)).unwrap().input {
        Input::Chat(chat) => chat,
        other => panic!("{other:?}"),
    }
}

/// The messages, a line each.
fn lines(messages: &[Message]) -> String {
    let part = |part: &ContentPart| match part {
        ContentPart::Text(text) => format!("{text:?}"),
        ContentPart::Reasoning(text) => format!("reasoning {text:?}"),
        ContentPart::ToolCall(ToolCall { id, name, arguments }) => format!("call {id} {name} {arguments:?}"),
        ContentPart::ToolResult(ToolResult { call_id, text }) => format!("result {call_id} {text:?}"),
        other => format!("{other:?}"),
    };
    let line = |message: &Message| {
        format!(
            "{}: {}",
            message.role.name(),
            message.content.iter().map(part).collect::<Vec<_>>().join(", ")
        )
    };
    messages.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(messages: Value, fields: Value, expected: Expect) {
    expected.assert_eq(&lines(&chat_of(messages, fields).messages));
}

fn check_refused(fields: Value, expected: Expect) {
    expected.assert_eq(&read(with(json!([{"role": "user", "content": "hi"}]), fields)).unwrap_err());
}

#[test]
fn system_messages_stand_where_they_were_sent_and_billing_is_left_out() {
    check(
        json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "system", "content": [{"type": "text", "text": "late", "cache_control": {"type": "ephemeral"}}]},
        ]),
        json!({"system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.330.581;"},
            {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "two"},
        ]}),
        expect![[r#"
            system: "one\n\ntwo"
            user: "a\n\nb"
            system: "late""#]],
    );
}

#[test]
fn a_string_and_a_marked_block_are_the_same() {
    let marked = json!([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]);
    let plain = chat_of(json!([{"role": "user", "content": "hi"}]), json!({"system": "s"}));
    let blocks = chat_of(
        json!([{"role": "user", "content": marked}]),
        json!({"system": [{"type": "text", "text": "s", "cache_control": {}}]}),
    );
    assert_eq!(plain, blocks);
}

#[test]
fn calls_results_and_hidden_thinking_come_back() {
    check(
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "", "signature": opaque::encode("hm")},
                {"type": "text", "text": "calling"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": "x"}, "caller": {"type": "direct"}},
                {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}]},
            {"role": "user", "content": [
                {"tool_use_id": "toolu_1", "type": "tool_result", "content": "3", "is_error": false},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [
                    {"type": "text", "text": "p"}, {"type": "text", "text": "q"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]},
                {"type": "text", "text": "now"}]},
        ]),
        json!({}),
        expect![[r#"
            user: "hi"
            assistant: "calling", reasoning "hm", call toolu_1 f Json("{\"b\":1,\"a\":\"x\"}"), call toolu_2 g Json("{}")
            tool: result toolu_1 "3"
            tool: result toolu_2 "p\n\nq", Image(MediaIndex(0))
            user: "now""#]],
    );
}

#[test]
fn a_deferred_tool_is_shown_where_it_is_referenced() {
    let tools = json!([
        {"name": "a", "description": "A.", "input_schema": {"type": "object"}},
        {"name": "b", "description": "B.", "input_schema": {"type": "object"}, "defer_loading": true},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ]);
    let request = read(with(
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "ToolSearch", "input": {"query": "b"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                "content": [{"type": "tool_reference", "tool_name": "b"}]}]},
        ]),
        json!({"tools": tools}),
    ))
    .unwrap();
    let Input::Chat(chat) = request.input else { panic!() };
    let shown = Tool::shown_by_template(&chat.tools).unwrap().to_string();
    let definition = r#"{"name":"a","description":"A.","parameters":{"type":"object"}}"#;
    assert_eq!(shown, format!(r#"[{{"type":"function","function":{definition}}}]"#));
    let callable: Vec<&str> = chat.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(callable, ["a", "b"]);
    assert_eq!(request.output, OutputMode::Message { calls: Some(CallLimit::Any) });
    expect![[r#"
        user: "hi"
        assistant: "", call 1 ToolSearch Json("{\"query\":\"b\"}")
        tool: result 1 "{\"name\":\"b\",\"description\":\"B.\",\"parameters\":{\"type\":\"object\"}}""#]]
    .assert_eq(&lines(&chat.messages));
}

#[test]
fn thinking_and_effort_switch_the_template() {
    let of = |fields: Value| {
        let chat = chat_of(json!([{"role": "user", "content": "hi"}]), fields);
        Value::Object(chat.template_kwargs).to_string()
    };
    expect![[r#"{"enable_thinking":false,"thinking":false}"#]].assert_eq(&of(json!({})));
    expect![[r#"{"enable_thinking":true,"thinking":true,"reasoning_effort":"high"}"#]].assert_eq(&of(
        json!({"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "xhigh"}}),
    ));
}

#[test]
fn unknown_parts_are_left_out_and_known_ones_checked() {
    check(
        json!([{"role": "user", "mood": "blue", "content": [
            {"type": "hologram", "text": "x"}, {"type": "text", "text": "hi", "novel": 1}]}]),
        json!({"brand_new": {"a": 1}, "thinking": {"type": "enabled", "budget_tokens": 1024, "novel": true}}),
        expect![[r#"user: "hi""#]],
    );
    check_refused(json!({"messages": []}), expect!["messages: messages: at least one message is required"]);
    check_refused(json!({"max_tokens": null}), expect!["max_tokens: `max_tokens` is missing"]);
    check_refused(
        json!({"messages": [{"role": "wizard", "content": "hi"}]}),
        expect!["messages[0].role: messages[0].role: must be `user`, `assistant` or `system`, not `wizard`"],
    );
    check_refused(
        json!({"tools": [{"name": "f"}]}),
        expect!["tools[0].input_schema: tools[0].input_schema: Field required"],
    );
    check_refused(
        json!({"thinking": {"type": "loud"}}),
        expect!["thinking.type: thinking.type: must be `enabled`, `adaptive` or `disabled`"],
    );
}
