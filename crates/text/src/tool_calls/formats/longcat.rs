//! `<longcat_tool_call>{"name": "NAME", "arguments": {"key": "value"}}</longcat_tool_call>`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "longcat",
    models: "LongCat",
    signs: &[&["<longcat_tool_call>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<longcat_tool_call>")],
    lead: &[],
    tail: &["</longcat_tool_call>"],
    shape: Shape::Members,
    names: Names::Any,
};
