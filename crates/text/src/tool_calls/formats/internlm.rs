//! `<|action_start|><|plugin|>{"name": "NAME", "parameters": {"key": "value"}}<|action_end|>`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "internlm",
    models: "InternLM 2 and 3",
    signs: &[&["<|action_start|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<|action_start|>")],
    lead: &["<|plugin|>"],
    tail: &["<|action_end|>"],
    shape: Shape::Members,
    names: Names::Any,
};
