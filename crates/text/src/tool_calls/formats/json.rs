//! Calls as JSON that the prompt describes, for models without a format: an object or an array of them, bare or in a code
//! block.
//!
//! Only names of the request's tools are calls: the answer may be JSON.

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "json",
    models: "models without a format, by prompt",
    signs: &[],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[
        Opening::message_start("{"),
        Opening::message_start("["),
        Opening::line_start("```json"),
        Opening::line_start("```\n"),
        Opening::anywhere("<tool_call>"),
    ],
    lead: &[],
    tail: &["}", "</tool_call>", "```"],
    shape: Shape::Members,
    names: Names::Known,
};
