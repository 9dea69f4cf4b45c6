//! `<atem:function_calls><atem:invoke name="NAME"><atem:parameter name="KEY">VALUE</atem:parameter></atem:invoke>`, and
//! `</atem:function_calls>`, in a message to the tool.

use super::super::call::named_call;
use super::super::muse::{ENDS, Header};
use super::super::parameters::{Padding, Parameters, named_parameter, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Dropped, Opening};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "muse",
    models: "Muse Glimmer",
    signs: &[&["atem:function_calls"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas), Box::new(Header), Dropped::syntax(ENDS)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<atem:function_calls>")],
    head: |peek| named_call(peek, &["<atem:function_calls>"], "<atem:invoke name=\"", "\">"),
    parameter: "<atem:parameter name=\"",
    parameter_head: |peek| named_parameter(peek, "\">"),
    value_end: "</atem:parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</atem:invoke>",
    next_call: "<atem:invoke name=\"",
    tail: &["</atem:function_calls>"],
};
