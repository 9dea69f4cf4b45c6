//! Lowers what an answer must match.

use omnibus_engine::{Grammar, SchemaUse, StructuredOutput, Whitespace};

use crate::wire::structured as wire;

/// What the engine's answer must match.
pub fn lower(wire: wire::StructuredOutput) -> StructuredOutput {
    let grammar = match wire.grammar {
        wire::Grammar::JsonObject => Grammar::JsonObject,
        wire::Grammar::JsonSchema(schema, whitespace, enforced) => Grammar::JsonSchema {
            schema: schema.to_string(),
            whitespace: self::whitespace(whitespace),
            schema_use: schema_use(enforced),
        },
        wire::Grammar::Regex(text) => Grammar::Regex(text),
        wire::Grammar::Choice(texts) => Grammar::Choice(texts),
        wire::Grammar::Lark(text) => Grammar::Lark(text),
    };
    StructuredOutput::new(grammar, wire.field)
}

fn whitespace(wire: wire::Whitespace) -> Whitespace {
    match wire {
        wire::Whitespace::Usual => Whitespace::Usual,
        wire::Whitespace::None => Whitespace::None,
    }
}

fn schema_use(wire: wire::Enforced) -> SchemaUse {
    match wire {
        wire::Enforced::All => SchemaUse::Strict,
        wire::Enforced::Possible => SchemaUse::Lenient,
    }
}
