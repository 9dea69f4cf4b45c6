//! Grammars of tool calls: a message of calls as the model's format writes them.

use omnibus_text::tool_calls::{ArgumentStyle, WrittenCalls};
use omnibus_text::{AddSpecial, Tokenizer};
use serde_json::{Map, Value, json};

use crate::{Grammar, GrammarError, GrammarLimits, lark, schema};

/// A tool as its calls must be.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Option<Value>,
    /// Whether its arguments must match the schema whatever that holds.
    pub schema: SchemaUse,
}

/// What a tool's schema is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// Arguments match it. What is not supported is an error.
    Strict,
    /// Arguments match it if it is supported; else they are any object.
    Lenient,
}

/// How many calls a message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallCount {
    /// One.
    One,
    /// One or more, where the format has several.
    Several,
}

/// Where the grammar begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStart {
    /// At the beginning of the answer, which is calls.
    Answer,
    /// Behind the format's marker, which the model may write or not.
    Marker,
}

/// A grammar of calls. The path of an error begins with the index of its tool. `None` if the format has no marker and the
/// grammar would begin behind it.
pub fn tool_calls(
    written: &WrittenCalls,
    tools: &[Tool],
    shape: (CallCount, CallStart),
    tokenizer: &Tokenizer,
    limits: &GrammarLimits,
) -> Result<Option<Grammar>, GrammarError> {
    let calls = rules(written, tools, shape, tokenizer, limits)?;
    Ok(calls.map(|calls| Grammar::Lark(format!("start: calls\n{calls}"))))
}

/// A grammar of calls, or of an answer that matches another grammar. `None` for a grammar in Lark's notation, whose rules
/// could have the names of those of calls.
pub fn calls_or_answer(
    written: &WrittenCalls,
    tools: &[Tool],
    count: CallCount,
    answer: &Grammar,
    (tokenizer, limits): (&Tokenizer, &GrammarLimits),
) -> Result<Option<Grammar>, GrammarError> {
    let answer = match answer {
        Grammar::JsonObject => format!("%json {}", with_whitespace(any_object())),
        Grammar::JsonSchema { schema: text, .. } => match schema::read(text, limits)? {
            Value::Object(schema) => format!("%json {}", with_whitespace(schema)),
            _ => "%json {}".to_owned(),
        },
        Grammar::Regex(text) => lark::expression(text),
        Grammar::Choice(texts) => {
            texts.iter().map(|text| lark::literal(text)).collect::<Vec<String>>().join(" | ")
        }
        Grammar::Lark(_) => return Ok(None),
    };
    let calls = rules(written, tools, (count, CallStart::Answer), tokenizer, limits)?;
    Ok(calls.map(|calls| Grammar::Lark(format!("start: calls | answer\nanswer: {answer}\n{calls}"))))
}

/// The rules of calls, from the rule `calls`.
fn rules(
    written: &WrittenCalls,
    tools: &[Tool],
    (count, start): (CallCount, CallStart),
    tokenizer: &Tokenizer,
    limits: &GrammarLimits,
) -> Result<Option<String>, GrammarError> {
    let mut writer = Writer { tokenizer, text: String::new() };
    let first = [written.begin, written.name].concat();
    let opening = match start {
        CallStart::Answer => first.as_str(),
        CallStart::Marker if written.marker.is_empty() => return Ok(None),
        CallStart::Marker => first.strip_prefix(written.marker).unwrap_or_default(),
    };
    let between = written.between.filter(|_| count == CallCount::Several);
    let more = match between {
        Some(between) => format!("({} call)*", writer.join(&[between, written.name])),
        None => String::new(),
    };
    writer.text = format!("calls: {} call {more} {}\n", writer.join(&[opening]), writer.join(&[written.end]));
    let alternatives: Vec<String> = (0..tools.len()).map(|at| format!("call_{at}")).collect();
    writer.text += &format!("call: {}\n", alternatives.join(" | "));
    for (at, tool) in tools.iter().enumerate() {
        let parameters = parameters(tool, limits)
            .map_err(|error| GrammarError { path: format!("[{at}].{}", error.path), ..error })?;
        writer.tool(at, tool, written, parameters)?;
    }
    Ok(Some(writer.text))
}

fn any_object() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object"))])
}

/// The schema of a tool's arguments, which are an object.
fn parameters(tool: &Tool, limits: &GrammarLimits) -> Result<Map<String, Value>, GrammarError> {
    let Some(schema) = &tool.parameters else { return Ok(any_object()) };
    let read = schema::read(&schema.to_string(), limits);
    let mut schema = match (read, tool.schema) {
        (Ok(Value::Object(schema)), _) => schema,
        (Ok(_), _) | (Err(_), SchemaUse::Lenient) => any_object(),
        (Err(error), SchemaUse::Strict) => return Err(error),
    };
    // Schemas of tools leave out that arguments are an object.
    if !["type", "$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.contains_key(*key)) {
        schema.insert("type".to_owned(), json!("object"));
    }
    Ok(schema)
}

struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    text: String,
}

impl Writer<'_> {
    /// These texts, one behind the other, as literals and special tokens. Nothing for no text.
    fn join(&self, texts: &[&str]) -> String {
        let whole = texts.concat();
        let tokens = self.tokenizer.encode(&whole, AddSpecial::No).unwrap_or_default();
        let is_special = |token: &u32| self.tokenizer.special_ids().contains(token);
        if !tokens.iter().any(is_special) {
            return if whole.is_empty() { String::new() } else { lark::literal(&whole) };
        }
        let (mut parts, mut bytes) = (Vec::new(), Vec::new());
        for token in tokens {
            if is_special(&token) {
                parts.extend(text_of(&mut bytes));
                parts.push(format!("<[{token}]>"));
            } else {
                bytes.extend(self.tokenizer.id_to_piece(token).unwrap_or_default());
            }
        }
        parts.extend(text_of(&mut bytes));
        parts.join(" ")
    }

    /// The rules of one tool's calls, from its name on.
    fn tool(
        &mut self,
        at: usize,
        tool: &Tool,
        written: &WrittenCalls,
        parameters: Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let name = match written.arguments.starts_with('"') && written.name.ends_with('"') {
            // Inside of a JSON string.
            true => Value::from(tool.name.as_str()).to_string().trim_matches('"').to_owned(),
            false => tool.name.clone(),
        };
        let (head, end) = (self.join(&[&name, written.arguments]), self.join(&[written.call_end]));
        self.text += &format!("call_{at}: {head} arguments_{at} {end}\n");
        match written.style {
            ArgumentStyle::Json => {
                self.text += &format!("arguments_{at}: %json {}\n", with_whitespace(parameters));
                Ok(())
            }
            ArgumentStyle::Parameters { key, value, end } => {
                self.parameters(at, &parameters, (key, value, end));
                Ok(())
            }
        }
    }

    /// A tag for each member of the schema, in its order; those that are not required may be left out.
    fn parameters(&mut self, at: usize, schema: &Map<String, Value>, (key, value, end): (&str, &str, &str)) {
        let empty = Map::new();
        let members = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut tags = Vec::new();
        for (index, (name, member)) in members.iter().enumerate() {
            let rule = format!("argument_{at}_{index}");
            tags.push(if required.contains(&name.as_str()) { rule.clone() } else { format!("{rule}?") });
            let head = self.join(&[key, name, value]);
            let definitions = definitions(schema);
            if is_free_string(member) {
                // The text ends at the first closing tag.
                let value = format!("{rule}_value");
                self.text += &format!("{rule}: {head} {value}\n");
                self.text += &format!("{value}[suffix={}]: /(.|\\n)*/\n", lark::literal(end));
            } else if let Some(texts) = texts(member) {
                let texts: Vec<String> = texts.iter().map(|text| lark::literal(text)).collect();
                self.text += &format!("{rule}: {head} ({}) {}\n", texts.join(" | "), self.join(&[end]));
            } else {
                let mut member = member.as_object().cloned().unwrap_or_default();
                member.extend(definitions);
                let json = with_whitespace(member);
                self.text += &format!("{rule}: {head} {rule}_value {}\n", self.join(&[end]));
                self.text += &format!("{rule}_value: %json {json}\n");
            }
        }
        let tags = if tags.is_empty() { "\"\"".to_owned() } else { tags.join(" ") };
        self.text += &format!("arguments_{at}: {tags}\n");
    }
}

/// Takes bytes as a literal.
fn text_of(bytes: &mut Vec<u8>) -> Option<String> {
    let bytes = std::mem::take(bytes);
    (!bytes.is_empty()).then(|| lark::literal(&String::from_utf8_lossy(&bytes)))
}

/// Definitions that a member's references may point to.
fn definitions(schema: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> + '_ {
    let kept = ["$defs", "definitions"].into_iter();
    kept.filter_map(|key| Some((key.to_owned(), schema.get(key)?.clone())))
}

/// Whether any text is valid.
fn is_free_string(schema: &Value) -> bool {
    let limits = ["enum", "const", "pattern", "format", "minLength", "maxLength"];
    let is_string = schema.get("type").and_then(Value::as_str) == Some("string");
    is_string && !limits.iter().any(|key| schema.get(*key).is_some())
}

/// The texts of an enumeration of strings.
fn texts(schema: &Value) -> Option<Vec<String>> {
    let values: Vec<&Value> = match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => vec![value],
        (None, Some(values)) => values.iter().collect(),
        (None, None) => return None,
    };
    values
        .into_iter()
        .map(|value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned))
        .collect()
}

/// The schema with the whitespace that models write, as llguidance takes it inside of a grammar.
fn with_whitespace(mut schema: Map<String, Value>) -> Value {
    schema.insert("x-guidance".to_owned(), json!({ "whitespace_pattern": lark::USUAL_WHITESPACE }));
    Value::Object(schema)
}
