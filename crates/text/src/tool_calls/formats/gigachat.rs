//! `<|function_call|>{"name": "NAME", "arguments": {"key": "value"}}`; GigaChat 3.0 in a message of its own.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "gigachat",
    models: "GigaChat 3 and 3.1",
    signs: &[&["<|function_call|>"], &["'role': 'function call'"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[
        Opening::anywhere("<|function_call|>"),
        Opening::anywhere("<|message_sep|>\n\nfunction call<|role_sep|>"),
        Opening::anywhere("function call<|role_sep|>"),
    ],
    lead: &[],
    tail: &["<|message_sep|>"],
    shape: Shape::Members,
    names: Names::Any,
};
