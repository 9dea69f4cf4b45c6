//! `<tool_calls:opensource><tool_call:opensource>NAME<tool_sep:opensource><arg_key:opensource>KEY</arg_key:opensource><arg_value:opensource>VALUE</arg_value:opensource>`,
//! and `</tool_call:opensource></tool_calls:opensource>`, with line breaks between the tags.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "hunyuan-3",
    models: "Hunyuan 3",
    signs: &[&["tool_sep", ":opensource"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<tool_calls:opensource>")],
    head,
    parameter: "<arg_key:opensource>",
    parameter_head,
    value_end: "</arg_value:opensource>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</tool_call:opensource>",
    next_call: "<tool_call:opensource>",
    tail: &["</tool_calls:opensource>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    if peek.optional("<tool_calls:opensource>")? {
        peek.whitespace()?;
    }
    peek.literal("<tool_call:opensource>")?;
    let name = peek.name(&['<'])?;
    peek.literal("<tool_sep:opensource>")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['<'])?.to_owned();
    peek.literal("</arg_key:opensource>")?;
    peek.whitespace()?;
    peek.literal("<arg_value:opensource>")?;
    Ok(ParameterHead::named(&name))
}
