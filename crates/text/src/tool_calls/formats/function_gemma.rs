//! `<start_function_call>call:NAME{key:<escape>value<escape>,number:1}<end_function_call>`

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "function-gemma",
    models: "FunctionGemma",
    signs: &[&["<start_function_call>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("<start_function_call>")],
    head,
    names: Names::Any,
    quotes: Quotes::Marker("<escape>"),
    tail: &["<end_function_call>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("<start_function_call>")?;
    peek.literal("call:")?;
    let name = peek.name(&['{'])?;
    Ok(CallHead::named(name))
}
