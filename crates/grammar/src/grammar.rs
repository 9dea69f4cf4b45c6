//! A grammar as a request states it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::GrammarError;
use crate::limits::GrammarLimits;
use crate::schema::SchemaUse;
use crate::{lark, schema};

/// What generated text must match. A plain value: what it means does not depend on the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema allows.
    JsonSchema {
        /// The schema, as JSON text.
        schema: String,
        /// Whitespace between JSON's tokens.
        whitespace: Whitespace,
        /// What of the schema is enforced.
        schema_use: SchemaUse,
    },
    /// A regular expression, which all of the text matches.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in Lark's notation; its start rule is `start`.
    Lark(String),
}

/// Whitespace between JSON's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Whitespace {
    /// A space, or a line break with indentation: what models write, and no endless runs.
    #[default]
    Usual,
    /// None.
    None,
}

impl Grammar {
    /// JSON that this schema allows.
    pub fn json_schema(schema: &Value) -> Self {
        Self::JsonSchema {
            schema: schema.to_string(),
            whitespace: Whitespace::Usual,
            schema_use: SchemaUse::Lenient,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::JsonObject => 0,
            Self::JsonSchema { schema: text, .. } | Self::Regex(text) | Self::Lark(text) => text.len(),
            Self::Choice(texts) => texts.iter().map(|text| text.len() + 1).sum(),
        }
    }
}

/// Checks what can be checked without a model: size, depth, and the keywords of a schema. The path in the error is
/// relative to the grammar. The result: JSON pointers of what of a schema is not enforced.
pub fn check(grammar: &Grammar, limits: &GrammarLimits) -> Result<Vec<String>, GrammarError> {
    if grammar.bytes() > limits.bytes {
        return Err(GrammarError::at("", format!("the grammar has more than {} bytes", limits.bytes)));
    }
    match grammar {
        Grammar::JsonObject => Ok(Vec::new()),
        Grammar::JsonSchema { schema, schema_use, .. } => {
            schema::read(schema, *schema_use, limits).map(|enforced| enforced.not_enforced)
        }
        Grammar::Regex(text) | Grammar::Lark(text) if text.trim().is_empty() => {
            Err(GrammarError::at("", "the grammar is empty"))
        }
        Grammar::Regex(text) | Grammar::Lark(text) => {
            lark::check_depth(text, limits.depth).map(|()| Vec::new())
        }
        Grammar::Choice(texts) if texts.is_empty() => Err(GrammarError::at("", "there is no choice")),
        Grammar::Choice(texts) => match texts.iter().position(String::is_empty) {
            Some(at) => Err(GrammarError::at(format!("[{at}]"), "a choice is empty")),
            None => Ok(Vec::new()),
        },
    }
}
