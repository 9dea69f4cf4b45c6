//! `<｜DSML｜function_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter></｜DSML｜invoke>`,
//! and `</｜DSML｜function_calls>`; from V4 on `tool_calls`. An attribute says whether a value is a string or JSON.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, ValueType, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "deepseek-v3.2",
    models: "DeepSeek V3.2 and V4 (DSML)",
    signs: &[&["DSML"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<｜DSML｜function_calls>"), Opening::anywhere("<｜DSML｜tool_calls>")],
    head,
    parameter: "<｜DSML｜parameter name=\"",
    parameter_head,
    value_end: "</｜DSML｜parameter>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</｜DSML｜invoke>",
    next_call: "<｜DSML｜invoke name=\"",
    tail: &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    if peek.optional("<｜DSML｜function_calls>")? || peek.optional("<｜DSML｜tool_calls>")? {
        peek.whitespace()?;
    }
    peek.literal("<｜DSML｜invoke name=\"")?;
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['"'])?.to_owned();
    let attributes = ["\" string=\"true\">", "\" string=\"false\">", "\">"];
    let value = match peek.one_of(&attributes)? {
        0 => ValueType::String,
        1 => ValueType::Json,
        _ => ValueType::Schema,
    };
    Ok(ParameterHead { name, value, end: None, nested: None })
}
