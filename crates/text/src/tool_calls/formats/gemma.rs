//! ```` ```tool_code ```` and `NAME(key="value", number=1)`, one call on each line, then ```` ``` ````.
//!
//! Gemma 2 and 3 have no format of their own; this is the one of Google's examples.

use super::super::json_calls::Names;
use super::super::python_calls::PythonCalls;
use super::ToolCallFormat;
use crate::syntax::Opening;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "gemma",
    models: "Gemma 2 and 3, by prompt",
    signs: &[&["```tool_code"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &PythonCalls =
    &PythonCalls { openings: &[Opening::line_start("```tool_code")], tail: &["```"], names: Names::Known };
