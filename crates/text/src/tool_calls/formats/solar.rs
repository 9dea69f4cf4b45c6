//! `<|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{"key": "value"}<|tool_call:end|><|calls|>`

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "solar",
    models: "Solar Open",
    signs: &[&["<|tool_call:begin|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[
        Opening::anywhere("<|begin|>assistant<|tool_calls|>"),
        Opening::anywhere("<|tool_calls|>"),
        Opening::anywhere("<|tool_call:begin|>"),
    ],
    head,
    names: Names::Any,
    quotes: Quotes::Json,
    tail: &["<|tool_call:end|>", "<|calls|>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<|begin|>assistant")?;
    peek.optional("<|tool_calls|>")?;
    peek.literal("<|tool_call:begin|>")?;
    let id = Some(peek.name(&['<'])?.to_owned());
    peek.literal("<|tool_call:name|>")?;
    let name = peek.name(&['<'])?.to_owned();
    peek.literal("<|tool_call:args|>")?;
    Ok(CallHead { id, name })
}
