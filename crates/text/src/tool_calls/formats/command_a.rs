//! `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "NAME", "parameters": {"key": "value"}}]<|END_ACTION|>`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "command-a",
    models: "Command R7B, Command A, Cohere 2 MoE",
    signs: &[&["<|START_ACTION|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<|START_ACTION|>")],
    lead: &[],
    tail: &["<|END_ACTION|>"],
    shape: Shape::Members,
    names: Names::Any,
};
