//! `<function=NAME>{"key": "value"}</function>`

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "functionary-v3.1",
    models: "Functionary 3.1, Llama 3.1 with custom tools",
    signs: &[&["<function="]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("<function=")],
    head,
    names: Names::Any,
    quotes: Quotes::Json,
    tail: &["</function>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("<function=")?;
    let name = peek.name(&['>'])?;
    peek.literal(">")?;
    Ok(CallHead::named(name))
}
