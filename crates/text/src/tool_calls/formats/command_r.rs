//! ```text
//! Action:
//! ```json
//! [{"tool_name": "NAME", "parameters": {"key": "value"}}]```
//! ```

use super::super::json_calls::{JsonCalls, Names, Shape};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "command-r",
    models: "Command R, Command R+",
    signs: &[&["Action:", "tool_name"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &JsonCalls = &JsonCalls {
    openings: &[Opening::line_start("Action:")],
    lead: &["```json"],
    tail: &["```"],
    shape: Shape::Members,
    names: Names::Any,
};
