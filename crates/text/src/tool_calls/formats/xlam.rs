//! `[{"name": "NAME", "arguments": {"key": "value"}}]`, bare or between tags.
//!
//! Without a marker, only names of the request's tools are calls: the answer may be JSON.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "xlam",
    models: "xLAM 1 and 2",
    signs: &[&["tool_call_name"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[
        Opening::anywhere("<tool_call>"),
        Opening::anywhere("[TOOL_CALLS]"),
        Opening::message_start("["),
        Opening::message_start("{"),
        Opening::line_start("```json"),
    ],
    lead: &[],
    tail: &["}", "</tool_call>", "```"],
    shape: Shape::Members,
    names: Names::Known,
};
