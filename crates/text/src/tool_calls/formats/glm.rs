//! ```text
//! <tool_call>NAME
//! <arg_key>KEY</arg_key>
//! <arg_value>VALUE</arg_value>
//! </tool_call>
//! ```
//!
//! Newer models leave out the line breaks.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "glm",
    models: "GLM 4.5 to 4.7, Laguna, Spark 2.5, Ling 3",
    signs: &[&["<arg_key>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas), super::hermes::CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<tool_call>")],
    head,
    parameter: "<arg_key>",
    parameter_head,
    value_end: "</arg_value>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</tool_call>",
    next_call: "",
    tail: &[],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("<tool_call>")?;
    let name = peek.name(&['<', '\n'])?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['<'])?.to_owned();
    peek.literal("</arg_key>")?;
    peek.whitespace()?;
    peek.literal("<arg_value>")?;
    Ok(ParameterHead::named(&name))
}
