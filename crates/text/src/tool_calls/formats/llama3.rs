//! `{"name": "NAME", "parameters": {"key": "value"}}`, with `<|python_tag|>` before it or not.
//!
//! Without a marker, only names of the request's tools are calls: the answer may be JSON.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "llama-3",
    models: "Llama 3.1, 3.2 and 3.3",
    signs: &[&["Environment: ipython"], &["<|python_tag|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("<|python_tag|>"), Opening::message_start("{")],
    lead: &[],
    tail: &[],
    shape: Shape::Members,
    names: Names::Known,
};
