//! `<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>`

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "seed-oss",
    models: "Seed OSS",
    signs: &[&["<seed:tool_call>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<seed:tool_call>")],
    head,
    parameter: "<parameter=",
    parameter_head,
    value_end: "</parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</function>",
    next_call: "<function=",
    tail: &["</seed:tool_call>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<seed:tool_call>")?;
    peek.whitespace()?;
    peek.literal("<function=")?;
    let name = peek.name(&['>'])?;
    peek.literal(">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['>'])?;
    peek.literal(">")?;
    Ok(ParameterHead::named(name))
}
