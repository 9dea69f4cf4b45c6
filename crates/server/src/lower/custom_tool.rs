//! A tool whose input is text, as the function that the model knows it as.

use omnibus_engine::{CallRule, InputGrammar, Tool};
use serde_json::{Value, json};

use crate::wire::input_grammar::{self as wire, InputSyntax};

/// The function of a custom tool: its only argument is the input.
pub fn function(name: &str, description: Option<String>, grammar: Option<&wire::InputGrammar>) -> Tool {
    let (input, rule) = match grammar {
        Some(grammar) => {
            (format!("Text of this grammar:\n{}", grammar.definition), CallRule::Input(lower(grammar)))
        }
        None => ("Any text.".to_owned(), CallRule::Lenient),
    };
    let parameters = json!({"type": "object", "properties":
        {"input": {"type": "string", "description": input}}, "required": ["input"]});
    Tool { rule, ..Tool::new(name, description, parameters) }
}

/// The arguments of the function for an input.
pub fn arguments(input: &str) -> Value {
    json!({ "input": input })
}

fn lower(wire: &wire::InputGrammar) -> InputGrammar {
    match wire.syntax {
        InputSyntax::Lark => InputGrammar::Lark(wire.definition.clone()),
        InputSyntax::Regex => InputGrammar::Regex(wire.definition.clone()),
    }
}
