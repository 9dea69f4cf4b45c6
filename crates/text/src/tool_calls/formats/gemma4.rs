//! `<|tool_call>call:NAME{key:<|"|>value<|"|>,number:1}<tool_call|>`

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "gemma-4",
    models: "Gemma 4",
    signs: &[&["<|tool_call>call:"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("<|tool_call>")],
    head,
    names: Names::Any,
    quotes: Quotes::Marker("<|\"|>"),
    tail: &["<tool_call|>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("<|tool_call>")?;
    peek.literal("call:")?;
    let name = peek.name(&['{'])?;
    Ok(CallHead::named(name))
}
