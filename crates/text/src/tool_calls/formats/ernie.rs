//! `<tool_call>{"name": "NAME", "arguments": {"key": "value"}}</tool_call>`, beside an answer in `<response>`.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "ernie",
    models: "ERNIE 4.5",
    signs: &[&["<tool_call>", "<response>", "<tool_output>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<tool_call>")],
    lead: &[],
    tail: &["</tool_call>"],
    shape: Shape::Members,
    names: Names::Any,
};
