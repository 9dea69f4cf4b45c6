//! The grammar that the input of a custom tool matches.

use super::fields::{Field, Fields, honoured};
use crate::error::ApiError;

/// Fields of a custom tool's `format`.
pub const FORMAT: &[Field] = &[
    honoured("type", "`text` or `grammar`"),
    honoured("syntax", "`lark` or `regex`"),
    honoured("definition", "the grammar"),
    honoured("grammar", "of chat completions: `syntax` and `definition`"),
];

/// The grammar of a custom tool's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputGrammar {
    /// Its notation.
    pub syntax: InputSyntax,
    /// The grammar.
    pub definition: String,
}

/// The notation of a custom tool's grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputSyntax {
    /// Lark's.
    Lark,
    /// A regular expression.
    Regex,
}

impl InputSyntax {
    /// Its name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lark => "lark",
            Self::Regex => "regex",
        }
    }
}

/// The grammar of a custom tool's `format`. Chat completions have it inside `grammar`.
pub fn read(fields: &mut Fields) -> Result<Option<InputGrammar>, ApiError> {
    let at = fields.at("format");
    let Some(format) = fields.value("format") else { return Ok(None) };
    let mut format = Fields::tolerant(format, &at, &[FORMAT])?;
    let kind = format.text("type")?;
    let inside = format.at("grammar");
    if let Some(grammar) = format.value("grammar") {
        format = Fields::tolerant(grammar, &inside, &[FORMAT])?;
    }
    let (syntax, definition) = (format.text("syntax")?, format.text("definition")?);
    if kind.as_deref() == Some("text") || (kind.is_none() && definition.is_none()) {
        return Ok(None);
    }
    let syntax = match syntax.as_deref() {
        Some("lark") => InputSyntax::Lark,
        Some("regex") => InputSyntax::Regex,
        _ => {
            let at = format.at("syntax");
            return Err(ApiError::invalid(&at, format!("`{at}` must be lark or regex")));
        }
    };
    let definition = format.required("definition", definition)?;
    Ok(Some(InputGrammar { syntax, definition }))
}
