//! ```text
//! <|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|>
//! <|open|>argument key="KEY" type="string"<|sep|>VALUE<|close|>argument<|sep|>
//! <|close|>call<|sep|><|close|>tools<|sep|>
//! ```
//!
//! There are no line breaks. An attribute has the type of a value.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, ValueType, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

/// The most text of a tag after the name, in bytes.
const MAX_ATTRIBUTES: usize = 128;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "kimi-k3",
    models: "Kimi K3",
    signs: &[&["<|open|>", "'argument'"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<|open|>tools<|sep|>"), Opening::anywhere("<|open|>call ")],
    head,
    parameter: "<|open|>argument ",
    parameter_head,
    value_end: "<|close|>argument<|sep|>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "<|close|>call<|sep|>",
    next_call: "<|open|>call ",
    tail: &["<|close|>tools<|sep|>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<|open|>tools<|sep|>")?;
    peek.literal("<|open|>call tool=\"")?;
    let name = peek.name(&['"'])?;
    peek.until("<|sep|>", MAX_ATTRIBUTES)?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    peek.literal("key=\"")?;
    let name = peek.name(&['"'])?.to_owned();
    let attributes = peek.until("<|sep|>", MAX_ATTRIBUTES)?;
    let value = if attributes.contains("type=\"string\"") { ValueType::String } else { ValueType::Json };
    Ok(ParameterHead { name, value, end: None, nested: None })
}
