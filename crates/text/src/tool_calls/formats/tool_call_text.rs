//! `TOOL_CALL: {"name": "NAME", "arguments": {"key": "value"}}` or `TOOL_CALL: NAME {"key": "value"}`, on a line of its
//! own, for models without a format whose prompt says so.

use super::super::call::CallHead;
use super::super::json_calls::{JsonCalls, Names, Shape};
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "tool-call-text",
    models: "models without a format, by prompt",
    signs: &[&["TOOL_CALL:"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![OBJECTS.syntax(schemas), CALLS.syntax(schemas)],
};

const OPENINGS: &[Opening] = &[Opening::line_start("TOOL_CALL:")];

const OBJECTS: &JsonCalls =
    &JsonCalls { openings: OPENINGS, lead: &[], tail: &[], shape: Shape::Members, names: Names::Any };

const CALLS: &NamedJson =
    &NamedJson { openings: OPENINGS, head, names: Names::Known, quotes: Quotes::Json, tail: &[")"] };

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("TOOL_CALL:")?;
    let name = peek.name(&['{', '('])?.to_owned();
    peek.optional("(")?;
    Ok(CallHead { id: None, name })
}
