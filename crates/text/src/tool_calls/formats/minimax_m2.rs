//! `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke></minimax:tool_call>`

use super::super::call::named_call;
use super::super::parameters::{Padding, Parameters, named_parameter, plain_value};
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "minimax-m2",
    models: "MiniMax M2",
    signs: &[&["minimax:tool_call"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<minimax:tool_call>")],
    head: |peek| named_call(peek, &["<minimax:tool_call>"], "<invoke name=\"", "\">"),
    parameter: "<parameter name=\"",
    parameter_head: |peek| named_parameter(peek, "\">"),
    value_end: "</parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</invoke>",
    next_call: "<invoke name=\"",
    tail: &["</minimax:tool_call>"],
};
