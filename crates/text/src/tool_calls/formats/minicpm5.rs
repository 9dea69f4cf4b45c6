//! `<function name="NAME"><param name="KEY">VALUE</param></function>`, with values that hold tags in `<![CDATA[…]]>`.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters, ValueType, plain_value};
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "minicpm-5",
    models: "MiniCPM 5",
    signs: &[&["<function name=", "<param name="]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("<function name=\"")],
    head,
    parameter: "<param name=\"",
    parameter_head,
    value_end: "</param>",
    convert: plain_value,
    padding: Padding::None,
    call_end: "</function>",
    next_call: "",
    tail: &[],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal("<function name=\"")?;
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let name = peek.name(&['"'])?.to_owned();
    peek.literal("\">")?;
    let is_cdata = peek.optional("<![CDATA[")?;
    let (value, end) = if is_cdata {
        (ValueType::String, Some("]]></param>".to_owned()))
    } else {
        (ValueType::Schema, None)
    };
    Ok(ParameterHead { name, value, end, nested: None })
}
