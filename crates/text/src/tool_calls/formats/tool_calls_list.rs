//! `<tool_calls>[{"name": "NAME", "arguments": {"key": "value"}, "id": "ID"}]</tool_calls>`; MiniMax M1 without brackets and commas, one object on each line.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "tool-calls",
    models: "Apriel, MiniMax M1, Jamba",
    signs: &[&["<tool_calls>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<tool_calls>")],
    lead: &[],
    tail: &["</tool_calls>"],
    shape: Shape::Members,
    names: Names::Any,
};
