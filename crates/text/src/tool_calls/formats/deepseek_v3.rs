//! ````text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
//! ```json
//! {"key": "value"}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ````

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "deepseek-v3",
    models: "DeepSeek V3 and R1",
    signs: &[&["<｜tool▁call▁begin｜>", "```json"]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas), super::deepseek_v31::CALLS.syntax(schemas)],
};

pub(super) const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere("<｜tool▁calls▁begin｜>"), Opening::anywhere("<｜tool▁call▁begin｜>")],
    head,
    names: Names::Any,
    quotes: Quotes::Json,
    tail: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("<｜tool▁calls▁begin｜>")?;
    peek.whitespace()?;
    peek.literal("<｜tool▁call▁begin｜>")?;
    peek.literal("function")?;
    peek.literal("<｜tool▁sep｜>")?;
    let name = peek.name(&['\n'])?;
    peek.whitespace()?;
    peek.literal("```json")?;
    Ok(CallHead::named(name))
}
