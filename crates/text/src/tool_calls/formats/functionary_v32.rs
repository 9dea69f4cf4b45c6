//! ```text
//! >>>NAME
//! {"key": "value"}
//! ```
//!
//! The recipient `all` is the client. The prompt ends with the first `>>>`.

use super::super::call::CallHead;
use super::super::json_calls::Names;
use super::super::named_json::NamedJson;
use super::ToolCallFormat;
use crate::syntax::{Dropped, Opening, Peek, Quotes, Stop};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "functionary-v3.2",
    models: "Functionary 3.2 and Small 3.2",
    signs: &[&[">>>${recipient}"]],
    prompt_ends: &[">>>"],
    syntaxes: |schemas| {
        vec![CALLS.syntax(schemas), Dropped::syntax(const { &[Opening::anywhere(">>>all\n")] })]
    },
};

const CALLS: &NamedJson = &NamedJson {
    openings: &[Opening::anywhere(">>>")],
    head,
    names: Names::Known,
    quotes: Quotes::Json,
    tail: &[],
};

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.literal(">>>")?;
    let name = peek.name(&['\n'])?;
    Ok(CallHead::named(name))
}
