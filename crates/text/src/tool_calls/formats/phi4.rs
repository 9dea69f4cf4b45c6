//! `<|tool_call|>[{"name": "NAME", "arguments": {"key": "value"}}]<|/tool_call|>`, or after `functools`.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "phi-4",
    models: "Phi 4 mini",
    signs: &[&["<|tool|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<|tool_call|>"), Opening::anywhere("functools")],
    lead: &[],
    tail: &["<|/tool_call|>"],
    shape: Shape::Members,
    names: Names::Any,
};
