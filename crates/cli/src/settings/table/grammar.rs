//! Settings of structured output.

use omnibus_engine::{Grammar, SchemaUse, StructuredOutput, Whitespace};

use super::{MAX, SAMPLING, STRUCTURED};
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "json-schema",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Structured output",
        commands: SAMPLING,
        scope: Scope::FlagOnly,
        help: "File with a JSON schema that the completion matches, or the schema itself.",
        set: |config, value| {
            let (schema, whitespace) = (read(&value.text(), '{')?, Whitespace::Usual);
            let grammar = Grammar::JsonSchema { schema, whitespace, schema_use: SchemaUse::Lenient };
            config.prompt.structured = Some(StructuredOutput::new(grammar, "--json-schema"));
            Ok(())
        },
    },
    Setting {
        name: "grammar",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Structured output",
        commands: SAMPLING,
        scope: Scope::FlagOnly,
        help: "File with a grammar in Lark's notation that the completion matches, from the rule `start`.",
        set: |config, value| {
            if config.prompt.structured.is_some() {
                return Err("--grammar and --json-schema exclude each other".to_owned());
            }
            let grammar = Grammar::Lark(read(&value.text(), '\n')?);
            config.prompt.structured = Some(StructuredOutput::new(grammar, "--grammar"));
            Ok(())
        },
    },
    Setting {
        name: "grammar-max-bytes",
        short: None,
        kind: Kind::Bytes,
        default: "256KiB",
        section: "Structured output",
        commands: STRUCTURED,
        scope: Scope::Everywhere,
        help: "Longest JSON schema or grammar of a request.",
        set: |config, value| {
            config.engine.grammar_limits.bytes = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "grammar-max-depth",
        short: None,
        kind: Kind::Count(1, 500),
        default: "64",
        section: "Structured output",
        commands: STRUCTURED,
        scope: Scope::Everywhere,
        help: "Deepest nesting of a schema or a grammar.",
        set: |config, value| {
            config.engine.grammar_limits.depth = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "grammar-max-states",
        short: None,
        kind: Kind::Count(100, MAX),
        default: "50000",
        section: "Structured output",
        commands: STRUCTURED,
        scope: Scope::Everywhere,
        help: "Most lexer states of a grammar, over all requests that share it. A state takes one to two kilobytes.",
        set: |config, value| {
            config.engine.grammar_limits.states = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "grammar-compile-ms",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "2000",
        section: "Structured output",
        commands: STRUCTURED,
        scope: Scope::Everywhere,
        help: "Milliseconds after which a request is refused whose grammar is not compiled.",
        set: |config, value| {
            config.engine.grammar_limits.compile_ms = value.count();
            Ok(())
        },
    },
    Setting {
        name: "grammar-cache",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "64",
        section: "Structured output",
        commands: STRUCTURED,
        scope: Scope::Everywhere,
        help: "Compiled grammars that are kept for later requests.",
        set: |config, value| {
            config.engine.grammar_limits.cached = value.count() as usize;
            Ok(())
        },
    },
];

/// The content of a file, or the text itself if it contains a character that begins no file's name.
fn read(text: &str, inline: char) -> Result<String, String> {
    if text.trim_start().starts_with(inline) || text.contains('\n') {
        return Ok(text.to_owned());
    }
    std::fs::read_to_string(text).map_err(|error| format!("cannot read {text}: {error}"))
}
