//! Messages as chat templates see them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use expect_test::{Expect, expect};
use jiff::civil::date;
use omnibus_text::{ChatTemplate, ContentPart, GenerationPrompt, MediaIndex, Message, RenderInput, Role};
use serde_json::{Map, json};

use crate::openai;

fn check(message: &Message, expected: Expect) {
    let template = ChatTemplate::new("{{ messages[0] | tojson }}").unwrap();
    let rendered = template.render(&RenderInput {
        messages: std::slice::from_ref(message),
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Add,
        reasoning_field: "reasoning_content",
        special_tokens: &[],
        kwargs: &Map::new(),
        now: date(2026, 3, 9).at(7, 5, 2, 0),
    });
    expected.assert_eq(&rendered.unwrap());
}

fn every_kind() -> Vec<Message> {
    openai::messages(&json!([
        {"role": "developer", "content": "Be brief.", "name": "ada"},
        {"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image"}]},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "add", "arguments": {"b": [1, 2.50], "a": null}}},
            {"id": "b", "type": "function", "function": {"name": "say", "arguments": "not JSON"}},
        ]},
        {"role": "tool", "content": "3.5", "tool_call_id": "a", "name": "add"},
    ]))
}

#[test]
fn templates_see_the_shape_of_openai() {
    let [developer, user, assistant, tool] = every_kind().try_into().unwrap();
    check(&developer, expect![[r#"{"role": "developer", "content": "Be brief.", "name": "ada"}"#]]);
    check(
        &user,
        expect![[r#"{"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image"}]}"#]],
    );
    check(
        &assistant,
        expect![[
            r#"{"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "add", "arguments": {"b": [1, 2.5], "a": null}}}, {"id": "b", "type": "function", "function": {"name": "say", "arguments": "not JSON"}}]}"#
        ]],
    );
    check(&tool, expect![[r#"{"role": "tool", "content": "3.5", "name": "add", "tool_call_id": "a"}"#]]);
    let empty = Message { role: Role::Assistant, name: None, content: Vec::new() };
    check(&empty, expect![[r#"{"role": "assistant", "content": null}"#]]);
}

#[test]
fn reasoning_is_where_the_template_reads_it() {
    let messages = [
        Message::new(Role::User, "Why?"),
        Message {
            role: Role::Assistant,
            name: None,
            content: vec![ContentPart::Reasoning("hm".into()), ContentPart::Text("so".into())],
        },
        Message::new(Role::Assistant, "and so on"),
    ];
    let rendered = |source: &str| {
        let template = ChatTemplate::new(&format!("{source}{{{{ messages[1:] | tojson }}}}")).unwrap();
        let input = RenderInput {
            messages: &messages,
            tools: None,
            documents: None,
            generation_prompt: GenerationPrompt::Add,
            reasoning_field: template.reasoning_field(),
            special_tokens: &[],
            kwargs: &Map::new(),
            now: date(2026, 3, 9).at(7, 5, 2, 0),
        };
        template.render(&input).unwrap()
    };
    let check = |source: &str, expected: Expect| expected.assert_eq(&rendered(source));
    check(
        "{% if messages[0].thinking %}{% endif %}",
        expect![[
            r#"[{"role": "assistant", "content": "so", "thinking": "hm"}, {"role": "assistant", "content": "and so on"}]"#
        ]],
    );
    check(
        "{% if messages[0]['type'] == 'thinking' %}{% endif %}",
        expect![[
            r#"[{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}]}, {"role": "assistant", "content": "and so on"}]"#
        ]],
    );
    check(
        "{% if messages[0].blocks == 'thoughts' %}{% endif %}",
        expect![[
            r#"[{"role": "assistant", "content": {"blocks": [{"type": "thoughts", "text": "hm"}, {"type": "response", "text": "so"}]}}, {"role": "assistant", "content": {"blocks": [{"type": "response", "text": "and so on"}]}}]"#
        ]],
    );
}

#[test]
fn with_text_replaces_the_content_only() {
    let [_, user, assistant, tool] = every_kind().try_into().unwrap();
    check(&user.with_text("x"), expect![[r#"{"role": "user", "content": "x"}"#]]);
    check(
        &tool.with_text("x"),
        expect![[r#"{"role": "tool", "content": "x", "name": "add", "tool_call_id": "a"}"#]],
    );
    let replaced = assistant.clone().with_text("x");
    assert_eq!(replaced.text().as_deref(), Some("x"));
    assert_eq!(replaced.content.len(), assistant.content.len());
}

#[test]
fn messages_cross_a_format_without_field_names() {
    let mut messages = every_kind();
    messages.push(Message { role: Role::User, name: None, content: vec![ContentPart::Audio(MediaIndex(0))] });
    let mut bytes = [0; 1024];
    let written = postcard::to_slice(&messages, &mut bytes).unwrap();
    assert_eq!(postcard::from_bytes::<Vec<Message>>(written).unwrap(), messages);
}
