//! `<|tools_prefix|>[{"NAME": {"key": "value"}}]<|tools_suffix|>`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "apertus",
    models: "Apertus",
    signs: &[&["<|tools_prefix|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<|tools_prefix|>")],
    lead: &[],
    tail: &["<|tools_suffix|>"],
    shape: Shape::NameIsKey,
    names: Names::Any,
};
