//! `<TOOLCALL>[{"name": "NAME", "arguments": {"key": "value"}}]</TOOLCALL>`

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "nemotron",
    models: "Nemotron Nano 2",
    signs: &[&["<TOOLCALL>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<TOOLCALL>")],
    lead: &[],
    tail: &["</TOOLCALL>"],
    shape: Shape::Members,
    names: Names::Any,
};
