//! `functools[{"name": "NAME", "arguments": {"key": "value"}}]`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "firefunction",
    models: "FireFunction 2",
    signs: &[&["functools["]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("functools")],
    lead: &[],
    tail: &[],
    shape: Shape::Members,
    names: Names::Any,
};
