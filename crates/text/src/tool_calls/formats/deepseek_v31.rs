//! `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{"key": "value"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "deepseek-v3.1",
    models: "DeepSeek V3.1",
    signs: &[&["<｜tool▁call▁begin｜>"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

pub(super) const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("<｜tool▁calls▁begin｜>"), Opening::anywhere("<｜tool▁call▁begin｜>")],
    head,
    names: Names::Any,
    quotes: Quotes::Json,
    tail: &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<｜tool▁calls▁begin｜>")?;
    peek.whitespace()?;
    peek.literal("<｜tool▁call▁begin｜>")?;
    let name = peek.name(&['<'])?;
    peek.literal("<｜tool▁sep｜>")?;
    Ok(CallHead::named(name))
}
