//! `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke></minimax:tool_call>`

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "minimax-m2",
    models: "MiniMax M2",
    signs: &[&["minimax:tool_call"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<minimax:tool_call>")],
    head,
    parameter: "<parameter name=\"",
    parameter_head,
    value_end: "</parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</invoke>",
    next_call: "<invoke name=\"",
    tail: &["</minimax:tool_call>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<minimax:tool_call>")?;
    peek.whitespace()?;
    peek.literal("<invoke name=\"")?;
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(ParameterHead::named(name))
}
