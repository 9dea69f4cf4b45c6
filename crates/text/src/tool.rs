//! The tools that a model may call, from an API's request to the chat template, the grammar of calls and their parser.
//!
//! Invariants: plain values, serializable in formats that name no fields. [`Tool::definition`] is the only place that
//! makes the JSON which templates show, so a prompt does not depend on the API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// A JSON schema of its arguments.
    pub parameters: Value,
    /// What its calls match, whatever the model would write. Prompts do not depend on it.
    pub rule: CallRule,
    /// Where the prompt shows it.
    pub place: ToolPlace,
}

/// What the arguments of a tool's calls match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallRule {
    /// What the model writes.
    #[default]
    Lenient,
    /// The schema.
    Strict,
    /// Their only argument, the text `input`, matches a grammar.
    Input(InputGrammar),
}

/// A grammar of the text that is a tool's only argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputGrammar {
    /// In Lark's notation.
    Lark(String),
    /// A regular expression.
    Regex(String),
}

/// Where a prompt shows a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolPlace {
    /// The chat template shows it.
    #[default]
    Template,
    /// A message shows it: a result that found it, or the system prompt.
    Message,
}

impl Tool {
    /// A tool that the chat template shows and whose calls are free.
    pub fn new(name: impl Into<String>, description: Option<String>, parameters: Value) -> Self {
        let (rule, place) = (CallRule::default(), ToolPlace::default());
        Self { name: name.into(), description, parameters, rule, place }
    }

    /// Its name, description and parameters as JSON, in this order.
    pub fn function(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".into(), self.name.clone().into());
        if let Some(description) = &self.description {
            function.insert("description".into(), description.clone().into());
        }
        function.insert("parameters".into(), self.parameters.clone());
        Value::Object(function)
    }

    /// As chat templates take it: an OpenAI tool object.
    pub fn definition(&self) -> Value {
        let members =
            [("type".to_owned(), Value::from("function")), ("function".to_owned(), self.function())];
        Value::Object(members.into_iter().collect())
    }

    /// The list of definitions that a chat template gets. `None` if it shows no tool.
    pub fn shown_by_template(tools: &[Self]) -> Option<Value> {
        let shown = tools.iter().filter(|tool| tool.place == ToolPlace::Template);
        let definitions: Vec<Value> = shown.map(Self::definition).collect();
        (!definitions.is_empty()).then_some(Value::Array(definitions))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_get_the_same_bytes_whatever_calls_must_match() {
        let schema =
            json!({"type": "object", "properties": {"b": {}, "a": {"type": "string"}}, "required": ["b"]});
        let free = Tool::new("f", Some("Does f.".into()), schema);
        let strict = Tool { rule: CallRule::Strict, ..free.clone() };
        let found = Tool { place: ToolPlace::Message, ..Tool::new("g", None, json!({})) };
        let bare = Tool::new("h", None, json!({}));
        let expected = r#"[{"type":"function","function":{"name":"f","description":"Does f.","parameters":{"type":"object","properties":{"b":{},"a":{"type":"string"}},"required":["b"]}}},{"type":"function","function":{"name":"h","parameters":{}}}]"#;
        for first in [free, strict] {
            let shown = Tool::shown_by_template(&[first, found.clone(), bare.clone()]).unwrap();
            assert_eq!(shown.to_string(), expected);
        }
        assert_eq!(Tool::shown_by_template(&[found]), None);
    }
}
