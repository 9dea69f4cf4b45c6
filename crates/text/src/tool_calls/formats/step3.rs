//! `<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME"><steptml:parameter name="KEY">VALUE</steptml:parameter>`,
//! and `</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>`.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "step-3",
    models: "Step 3",
    signs: &[&["steptml:invoke"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[
        Opening::anywhere("<｜tool_calls_begin｜>"),
        Opening::anywhere("<｜tool_call_begin｜>"),
        Opening::anywhere("<steptml:invoke name=\""),
    ],
    head,
    parameter: "<steptml:parameter name=\"",
    parameter_head,
    value_end: "</steptml:parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</steptml:invoke>",
    next_call: "",
    tail: &["<｜tool_call_end｜>", "<｜tool_calls_end｜>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<｜tool_calls_begin｜>")?;
    peek.whitespace()?;
    peek.optional("<｜tool_call_begin｜>")?;
    peek.whitespace()?;
    peek.optional("function<｜tool_sep｜>")?;
    peek.whitespace()?;
    peek.literal("<steptml:invoke name=\"")?;
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(ParameterHead::named(name))
}
