//! `[NAME(key="value", number=1)]`, between `<|python_start|>` and `<|python_end|>` or bare.
//!
//! Without a marker, only names of the request's tools are calls: the answer may be a list.

use super::super::json_calls::Names;
use super::super::python_calls::PythonCalls;
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "llama-4",
    models: "Llama 4, Llama 3.2 with pythonic calls",
    signs: &[&["<|python_start|>"], &["func_name1(params_name1"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &PythonCalls = &PythonCalls {
    openings: &[Opening::anywhere("<|python_start|>"), Opening::message_start("[")],
    tail: &["<|python_end|>"],
    names: Names::Known,
};
