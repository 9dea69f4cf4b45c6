//! `<|tool_call|>[{"name": "NAME", "arguments": {"key": "value"}}]`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "granite",
    models: "Granite 3",
    signs: &[&["<|tool_call|>"], &["<function_call>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[
        Opening::anywhere("<|tool_call|>"),
        Opening::anywhere("<function_call>"),
        Opening::anywhere("<tool_call>"),
    ],
    lead: &[],
    tail: &["</tool_call>"],
    shape: Shape::Members,
    names: Names::Any,
};
