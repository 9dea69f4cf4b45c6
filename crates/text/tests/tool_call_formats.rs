//! Outputs of each format, written by hand, and their deltas under every split.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "common/deltas.rs"]
mod deltas;

use deltas::{Setup, lines};
use expect_test::{Expect, expect};
use omnibus_text::{ReasoningFormat, ToolCallFormat, ToolSchemas};
use serde_json::json;

fn schemas() -> ToolSchemas {
    ToolSchemas::new(&json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
        }}}},
        {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}}, "options": {"type": "object"},
        }}}},
    ]))
}

fn check(format: &str, text: &str, expected: Expect) {
    let schemas = schemas();
    let tools = Some((ToolCallFormat::named(format).unwrap(), &schemas));
    let setup = Setup { prompt: "", reasoning: ReasoningFormat::named(format), tools };
    expected.assert_eq(&lines(&setup.parse_every_split(text)));
}

#[test]
fn hermes() {
    check(
        "hermes",
        "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Z\\u00fcrich\", \"days\" : 2}}\n</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"add\"}</tool_call>",
        expect![[r#"
            text "Let me look."
            call get_weather {"city":"Zürich","days":2}
            call add {}
        "#]],
    );
}

#[test]
fn qwen3_coder() {
    check(
        "qwen3-coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n42\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=x>\n</parameter>\n</function>\n</tool_call>\nDone.",
        expect![[r#"
            call get_weather {"city":"42","days":42,"exact":true,"x":""}
            text "Done."
        "#]],
    );
}

#[test]
fn harmony() {
    check(
        "harmony",
        "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary<|message|>Looking.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
        expect![[r#"
            reasoning "Need weather."
            text "Looking."
            call get_weather {"city":"Bern"}
        "#]],
    );
}
