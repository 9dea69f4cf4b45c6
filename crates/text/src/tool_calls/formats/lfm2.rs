//! `<|tool_call_start|>[NAME(key="value", number=1)]<|tool_call_end|>`

use super::super::json_calls::Names;
use super::super::python_calls::PythonCalls;
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "lfm2",
    models: "LFM 2 and 2.5",
    signs: &[&["<|tool_call_start|>"], &["List of tools: "]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &PythonCalls = &PythonCalls {
    openings: &[Opening::anywhere("<|tool_call_start|>")],
    tail: &["<|tool_call_end|>"],
    names: Names::Any,
};
