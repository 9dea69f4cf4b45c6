//! `<tool_calls>[{"name": "NAME", "arguments": {"key": "value"}}]</tool_calls>`, with `<tool_call>` around objects that stand alone.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "hunyuan",
    models: "Hunyuan A13B",
    signs: &[&["<tool_calls>", "<answer>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<tool_calls>"), Opening::anywhere("<tool_call>")],
    lead: &[],
    tail: &["</tool_call>", "</tool_calls>"],
    shape: Shape::Members,
    names: Names::Any,
};
