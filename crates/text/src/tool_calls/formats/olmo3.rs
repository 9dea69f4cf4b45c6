//! `<function_calls>NAME(key="value", number=1)</function_calls>`, one call on each line.

use super::super::json_calls::Names;
use super::super::python_calls::PythonCalls;
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "olmo-3",
    models: "OLMo 3",
    signs: &[&["<function_calls>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &PythonCalls = &PythonCalls {
    openings: &[Opening::anywhere("<function_calls>")],
    tail: &["</function_calls>"],
    names: Names::Any,
};
