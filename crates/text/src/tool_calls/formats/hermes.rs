//! `<tool_call>{"name": "NAME", "arguments": {"key": "value"}}</tool_call>`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "hermes",
    models: "Hermes 2 and 3, Qwen 2.5 and 3, QwQ, Granite 4, MiMo, Reka, Bielik and others",
    signs: &[&["<tool_call>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

pub(super) const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<tool_call>")],
    lead: &[],
    tail: &["</tool_call>"],
    shape: Shape::Members,
    names: Names::Any,
};
