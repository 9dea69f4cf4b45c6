//! ```text
//! <tool_call>
//! <function=NAME>
//! <parameter=KEY>
//! VALUE
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Models leave out the outer tag at times.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "qwen3-coder",
    models: "Qwen 3 Coder, Qwen 3.5, Nemotron 3, Step 3.5",
    signs: &[&["<function=", "<parameter="]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas), super::hermes::CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<tool_call>"), Opening::anywhere("<function=")],
    head,
    parameter: "<parameter=",
    parameter_head,
    value_end: "</parameter>",
    convert: plain_value,
    padding: Padding::Newline,
    call_end: "</function>",
    next_call: "<function=",
    tail: &["</tool_call>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<tool_call>")?;
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
