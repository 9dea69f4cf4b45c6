//! `[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{"key": "value"}`, without the id in most versions, and before version 11 of the
//! tokenizer `[TOOL_CALLS][{"name": "NAME", "arguments": {"key": "value"}, "id": "ID"}]`.

use super::super::call::CallHead;
use super::super::json_calls::{JsonCalls, Names, Shape};
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "mistral",
    models: "Mistral, Mixtral, Ministral, Magistral, Devstral",
    signs: &[&["[TOOL_CALLS]"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![LIST.syntax(schemas), CALLS.syntax(schemas)],
};

const LIST: &JsonCalls = &JsonCalls {
    openings: &[Opening::anywhere("[TOOL_CALLS]")],
    lead: &[],
    tail: &[],
    shape: Shape::Members,
    names: Names::Any,
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("[TOOL_CALLS]")],
    head,
    names: Names::Any,
    quotes: Quotes::Json,
    tail: &[],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("[TOOL_CALLS]")?;
    let name = peek.name(&['[', '{'])?.to_owned();
    let id = if peek.optional("[CALL_ID]")? { Some(peek.name(&['['])?.to_owned()) } else { None };
    peek.optional("[ARGS]")?;
    Ok(CallHead { id, name })
}
