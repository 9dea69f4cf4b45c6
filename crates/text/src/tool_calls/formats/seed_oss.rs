//! `<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>`

use super::super::call::named_call;
use super::super::parameters::{Padding, Parameters, named_parameter, plain_value};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "seed-oss",
    models: "Seed OSS",
    signs: &[&["<seed:tool_call>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<seed:tool_call>")],
    head: |peek| named_call(peek, &["<seed:tool_call>"], "<function=", ">"),
    parameter: "<parameter=",
    parameter_head: |peek| named_parameter(peek, ">"),
    value_end: "</parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</function>",
    next_call: "<function=",
    tail: &["</seed:tool_call>"],
};
