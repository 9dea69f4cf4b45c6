//! `<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{"key": "value"}<|tool_call_end|>`, and
//! `<|tool_calls_section_end|>` at the end.

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "kimi-k2",
    models: "Kimi K2 and K2 Thinking",
    signs: &[&["<|tool_call_begin|>", "<|tool_call_argument_begin|>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("<|tool_calls_section_begin|>"), Opening::anywhere("<|tool_call_begin|>")],
    head,
    names: Names::Any,
    quotes: Quotes::Json,
    tail: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<|tool_calls_section_begin|>")?;
    peek.whitespace()?;
    peek.literal("<|tool_call_begin|>")?;
    let id = peek.name(&['<'])?;
    peek.literal("<|tool_call_argument_begin|>")?;
    let name = id.rsplit_once(':').map_or(id, |(name, _)| name);
    let name = name.strip_prefix("functions.").unwrap_or(name).to_owned();
    Ok(CallHead { id: Some(id.to_owned()), name })
}
