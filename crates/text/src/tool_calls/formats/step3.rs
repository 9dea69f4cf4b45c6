//! `<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME"><steptml:parameter name="KEY">VALUE</steptml:parameter>`,
//! and `</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>`.

use super::super::call::named_call;
use super::super::parameters::{Padding, Parameters, named_parameter, plain_value};
use super::ToolCallFormat;
use crate::syntax::Opening;

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
    head: |peek| {
        named_call(
            peek,
            &["<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "function<｜tool_sep｜>"],
            "<steptml:invoke name=\"",
            "\">",
        )
    },
    parameter: "<steptml:parameter name=\"",
    parameter_head: |peek| named_parameter(peek, "\">"),
    value_end: "</steptml:parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</steptml:invoke>",
    next_call: "",
    tail: &["<｜tool_call_end｜>", "<｜tool_calls_end｜>"],
};
