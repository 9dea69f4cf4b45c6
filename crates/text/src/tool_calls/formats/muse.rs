//! `<atem:function_calls><atem:invoke name="NAME"><atem:parameter name="KEY">VALUE</atem:parameter></atem:invoke>`, and
//! `</atem:function_calls>`, in a message to the tool.

use super::super::call::CallHead;
use super::super::muse::{ENDS, Header};
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Dropped, Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "muse",
    models: "Muse Glimmer",
    signs: &[&["atem:function_calls"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas), Box::new(Header), Dropped::syntax(ENDS)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<atem:function_calls>")],
    head,
    parameter: "<atem:parameter name=\"",
    parameter_head,
    value_end: "</atem:parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</atem:invoke>",
    next_call: "<atem:invoke name=\"",
    tail: &["</atem:function_calls>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<atem:function_calls>")?;
    peek.whitespace()?;
    peek.literal("<atem:invoke name=\"")?;
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(ParameterHead::named(name))
}
