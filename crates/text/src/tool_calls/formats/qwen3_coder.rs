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

use super::super::call::named_call;
use super::super::parameters::{Padding, Parameters, named_parameter, plain_value};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "qwen3-coder",
    models: "Qwen 3 Coder, Qwen 3.5, Nemotron 3, Step 3.5",
    signs: &[&["<function=", "<parameter="]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas), super::hermes::CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<tool_call>"), Opening::anywhere("<function=")],
    head: |peek| named_call(peek, &["<tool_call>"], "<function=", ">"),
    parameter: "<parameter=",
    parameter_head: |peek| named_parameter(peek, ">"),
    value_end: "</parameter>",
    convert: plain_value,
    padding: Padding::Newline,
    call_end: "</function>",
    next_call: "<function=",
    tail: &["</tool_call>"],
};
