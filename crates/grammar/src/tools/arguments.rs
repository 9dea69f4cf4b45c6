//! Rules of the arguments of one tool's calls.

use omnibus_text::tool_calls::{ArgumentStyle, IDENTIFIER};
use serde_json::{Map, Value};

use super::keywords::{constants, is_required, members, with_definitions};
use super::notation::NotationWriter;
use super::writer::Writer;
use super::{INPUT, text_value};
use crate::error::GrammarError;
use crate::grammar::{Grammar, check};
use crate::lark;
use crate::limits::GrammarLimits;
use crate::schema::SchemaUse;

/// The arguments of the tool at an index.
pub(super) struct Arguments {
    pub at: usize,
    pub style: ArgumentStyle,
    pub schema_use: SchemaUse,
}

impl Arguments {
    fn rule(&self) -> String {
        format!("arguments_{}", self.at)
    }

    /// The rules of arguments that match a schema.
    pub fn write(&self, schema: &Map<String, Value>, writer: &mut Writer<'_>) -> Result<(), GrammarError> {
        match self.style {
            ArgumentStyle::Json => writer.json(&self.rule(), schema.clone()),
            ArgumentStyle::Parameters { key, value, json, end } => {
                self.parameters(schema, (key, [value, json], end), writer)?;
            }
            ArgumentStyle::Keywords => self.keywords(schema, writer)?,
            ArgumentStyle::Notation(notation) => {
                let prefix = format!("value_{}", self.at);
                let value =
                    NotationWriter::new(writer, &notation, (schema, self.schema_use), prefix).root()?;
                writer.rule(&self.rule(), &value);
            }
        }
        Ok(())
    }

    /// Keyword arguments in the order of the schema.
    fn keywords(&self, schema: &Map<String, Value>, writer: &mut Writer<'_>) -> Result<(), GrammarError> {
        let mut arguments = Vec::new();
        for (index, (name, member)) in members(schema).enumerate() {
            let is_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.' | '-' | '$');
            if name.is_empty() || !name.chars().all(is_name) {
                let message = format!("the argument `{name}` cannot be written as a keyword");
                return Err(GrammarError::at("properties", message));
            }
            writer.check_size()?;
            let argument = format!("argument_{}_{index}", self.at);
            writer.rule(&argument, &format!("{} {argument}_value", lark::literal(&format!("{name}="))));
            writer.json(&format!("{argument}_value"), with_definitions(member, schema));
            arguments.push((argument, is_required(schema, name)));
        }
        writer.sequence(&self.rule(), &arguments, ", ");
        Ok(())
    }

    /// A tag for each member of the schema, in its order; those that are not required may be left out.
    fn parameters(
        &self,
        schema: &Map<String, Value>,
        (key, [value, json], end): (&str, [&str; 2], &str),
        writer: &mut Writer<'_>,
    ) -> Result<(), GrammarError> {
        let mut tags = Vec::new();
        for (index, (name, member)) in members(schema).enumerate() {
            writer.check_size()?;
            let rule = format!("argument_{}_{index}", self.at);
            let member = with_definitions(member, schema);
            if let Some(texts) = texts(&member) {
                let head = writer.join(&[key, name, value]);
                let texts: Vec<String> = texts.iter().map(|text| lark::literal(text)).collect();
                writer.rule(&rule, &format!("{head} ({}) {}", texts.join(" | "), writer.join(&[end])));
            } else if text_value::is_string(&member) {
                writer.rule(&rule, &format!("{} {rule}_value", writer.join(&[key, name, value])));
                writer.text_until(&format!("{rule}_value"), &text_value::expression(&member), end);
            } else {
                let (head, end) = (writer.join(&[key, name, json]), writer.join(&[end]));
                writer.rule(&rule, &format!("{head} {rule}_value {end}"));
                writer.json(&format!("{rule}_value"), member);
            }
            tags.push((rule, is_required(schema, name)));
        }
        if tags.is_empty() && schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            let rule = format!("argument_{}", self.at);
            writer.rule(&self.rule(), &format!("{rule}*"));
            writer.rule(
                &rule,
                &format!("{} {rule}_value", writer.join(&[key, &IDENTIFIER.to_string(), value])),
            );
            writer.text_until(&format!("{rule}_value"), text_value::ANY_TEXT, end);
            return Ok(());
        }
        writer.sequence(&self.rule(), &tags, "");
        Ok(())
    }

    /// The rules of an input that matches a grammar.
    pub fn write_input(
        &self,
        input: &Grammar,
        limits: &GrammarLimits,
        writer: &mut Writer<'_>,
    ) -> Result<(), GrammarError> {
        let in_format = |error: GrammarError| GrammarError { path: "format".to_owned(), ..error };
        check(input, limits).map_err(in_format)?;
        let (begin, end, is_json) = match self.style {
            ArgumentStyle::Json => (format!("{{\"{INPUT}\": \""), "\"}".to_owned(), true),
            ArgumentStyle::Keywords => (format!("{INPUT}=\""), "\"".to_owned(), true),
            ArgumentStyle::Parameters { key, value, end, .. } => {
                ([key, INPUT, value].concat(), end.to_owned(), false)
            }
            ArgumentStyle::Notation(notation) => {
                let [begin, end] = notation.object_of_text(INPUT);
                (begin, end, false)
            }
        };
        let body = match (input, is_json) {
            (Grammar::Lark(text), true) => {
                format!("%lark {{\n{}\n}}", lark::in_json(text).map_err(in_format)?)
            }
            (Grammar::Lark(text), false) => format!("%lark {{\n{text}\n}}"),
            (Grammar::Regex(text), true) => lark::expression_in_json(text).map_err(in_format)?,
            (Grammar::Regex(text), false) => lark::expression(text),
            _ => {
                let message = "a tool's input is of a Lark grammar or a regex";
                return Err(in_format(GrammarError::at("", message)));
            }
        };
        let (begin, end) = (writer.join(&[&begin]), writer.join(&[&end]));
        writer.rule(&self.rule(), &format!("{begin} input_{} {end}", self.at));
        writer.rule(&format!("input_{}", self.at), &body);
        Ok(())
    }
}

/// The texts of an enumeration of strings.
fn texts(schema: &Map<String, Value>) -> Option<Vec<String>> {
    let text = |value: Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    constants(schema)?.into_iter().map(text).collect()
}
