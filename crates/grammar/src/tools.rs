//! Grammars of tool calls: a message of calls as the model's format writes them.

use omnibus_text::tool_calls::{ArgumentStyle, WrittenCalls, WrittenReasoning};
use omnibus_text::{AddSpecial, Tokenizer};
use serde_json::{Map, Value, json};

use crate::{Grammar, GrammarError, GrammarLimits, check, lark, schema};

/// A tool as its calls must be.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Option<Value>,
    /// Whether its arguments must match the schema whatever that holds.
    pub schema: SchemaUse,
    /// What its only argument, the text [`INPUT`], must match. The schema is not used then.
    pub input: Option<Grammar>,
}

/// The name of the only argument of a tool whose input is a text.
pub const INPUT: &str = "input";

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
/// could have the names of those of calls, and where the format of reasoning tells calls and answers apart.
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
    if written.reasoning.is_some() {
        return Ok(None);
    }
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
        CallStart::Marker => first.split_once(written.marker).map_or("", |(_, behind)| behind),
    };
    let between = written.between.filter(|_| count == CallCount::Several);
    let more = match between {
        Some(between) => format!("({} call)*", writer.join(&[between, written.name])),
        None => String::new(),
    };
    let reasoning = match (written.reasoning, start) {
        (Some(reasoning), CallStart::Answer) => writer.reasoning(&reasoning),
        _ => "",
    };
    let (opening, end) = (writer.join(&[opening]), writer.join(&[written.end]));
    writer.text += &format!("calls: {reasoning} {opening} call {more} {end}\n");
    let alternatives: Vec<String> = (0..tools.len()).map(|at| format!("call_{at}")).collect();
    writer.text += &format!("call: {}\n", alternatives.join(" | "));
    for (at, tool) in tools.iter().enumerate() {
        let in_tool = |error: GrammarError| GrammarError { path: format!("[{at}].{}", error.path), ..error };
        writer.head(at, tool, written);
        match &tool.input {
            Some(input) => writer.input(at, input, written, limits).map_err(in_tool)?,
            None => {
                let parameters = parameters(tool, limits).map_err(in_tool)?;
                writer.arguments(at, parameters, written).map_err(in_tool)?;
            }
        }
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

    /// The rule of one tool's calls, from its name on.
    fn head(&mut self, at: usize, tool: &Tool, written: &WrittenCalls) {
        let name = match written.arguments.starts_with('"') && written.name.ends_with('"') {
            // Inside of a JSON string.
            true => Value::from(tool.name.as_str()).to_string().trim_matches('"').to_owned(),
            false => tool.name.clone(),
        };
        let (head, end) = (self.join(&[&name, written.arguments]), self.join(&[written.call_end]));
        self.text += &format!("call_{at}: {head} arguments_{at} {end}\n");
    }

    /// The rules of a tool's arguments.
    fn arguments(
        &mut self,
        at: usize,
        parameters: Map<String, Value>,
        written: &WrittenCalls,
    ) -> Result<(), GrammarError> {
        match written.style {
            ArgumentStyle::Json => {
                self.text += &format!("arguments_{at}: %json {}\n", with_whitespace(parameters));
            }
            ArgumentStyle::Parameters { key, value, json, end } => {
                self.parameters(at, &parameters, (key, [value, json], end));
            }
            ArgumentStyle::Keywords => return self.keywords(at, &parameters),
        }
        Ok(())
    }

    /// Reasoning that may come before the calls, and the rule's use.
    fn reasoning(&mut self, reasoning: &WrittenReasoning) -> &'static str {
        let begin = self.join(&[reasoning.begin]);
        let (end, behind) = (self.join(&[reasoning.end]), self.join(&[reasoning.behind]));
        // Text never holds a special token.
        self.text += &match end.starts_with('<') {
            true => format!("reasoning: {begin} reasoning_text {end} {behind}\nreasoning_text: /(.|\\n)*/\n"),
            false => {
                let end = lark::literal(reasoning.end);
                format!(
                    "reasoning: {begin} reasoning_text {behind}\nreasoning_text[suffix={end}]: /(.|\\n)*/\n"
                )
            }
        };
        "reasoning?"
    }

    /// Keyword arguments in the order of the schema. Behind a first one, each has a comma before it.
    fn keywords(&mut self, at: usize, schema: &Map<String, Value>) -> Result<(), GrammarError> {
        let empty = Map::new();
        let members = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = required(schema);
        let mut rules = String::new();
        for (index, (name, member)) in members.iter().enumerate() {
            let is_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.' | '-' | '$');
            if name.is_empty() || !name.chars().all(is_name) {
                let message = format!("the argument `{name}` cannot be written as a keyword");
                return Err(GrammarError::at("properties", message));
            }
            let mut member = member.as_object().cloned().unwrap_or_default();
            member.extend(definitions(schema));
            let (key, next) = (lark::literal(&format!("{name}=")), index + 1);
            let argument = format!("argument_{at}_{index}");
            let (mut first, mut more) =
                (format!("{argument} more_{at}_{next}"), format!("\", \" {argument} more_{at}_{next}"));
            if !required.contains(&name.as_str()) {
                first += &format!(" | first_{at}_{next}");
                more += &format!(" | more_{at}_{next}");
            }
            rules += &format!("first_{at}_{index}: {first}\nmore_{at}_{index}: {more}\n");
            rules += &format!("{argument}: {key} {argument}_value\n");
            rules += &format!("{argument}_value: %json {}\n", with_whitespace(member));
        }
        let last = members.len();
        rules += &format!("first_{at}_{last}: \"\"\nmore_{at}_{last}: \"\"\n");
        self.text += &format!("arguments_{at}: first_{at}_0\n{rules}");
        Ok(())
    }

    /// The rules of an input that matches a grammar.
    fn input(
        &mut self,
        at: usize,
        input: &Grammar,
        written: &WrittenCalls,
        limits: &GrammarLimits,
    ) -> Result<(), GrammarError> {
        let in_format = |error: GrammarError| GrammarError { path: "format".to_owned(), ..error };
        check(input, limits).map_err(in_format)?;
        let (begin, end) = match written.style {
            ArgumentStyle::Json => (format!("{{\"{INPUT}\": \""), "\"}".to_owned()),
            ArgumentStyle::Parameters { key, value, end, .. } => {
                ([key, INPUT, value].concat(), end.to_owned())
            }
            ArgumentStyle::Keywords => (format!("{INPUT}=\""), "\"".to_owned()),
        };
        let body = match (input, written.style) {
            (Grammar::Lark(text), ArgumentStyle::Json | ArgumentStyle::Keywords) => {
                format!("%lark {{\n{}\n}}", lark::in_json(text).map_err(in_format)?)
            }
            (Grammar::Lark(text), ArgumentStyle::Parameters { .. }) => format!("%lark {{\n{text}\n}}"),
            (Grammar::Regex(text), ArgumentStyle::Json | ArgumentStyle::Keywords) => {
                lark::expression_in_json(text).map_err(in_format)?
            }
            (Grammar::Regex(text), ArgumentStyle::Parameters { .. }) => lark::expression(text),
            _ => {
                return Err(in_format(GrammarError::at(
                    "",
                    "a tool's input is of a Lark grammar or a regex",
                )));
            }
        };
        let (begin, end) = (self.join(&[&begin]), self.join(&[&end]));
        self.text += &format!("arguments_{at}: {begin} input_{at} {end}\ninput_{at}: {body}\n");
        Ok(())
    }

    /// A tag for each member of the schema, in its order; those that are not required may be left out.
    fn parameters(
        &mut self,
        at: usize,
        schema: &Map<String, Value>,
        (key, [value, json], end): (&str, [&str; 2], &str),
    ) {
        let empty = Map::new();
        let members = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = required(schema);
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
                let head = self.join(&[key, name, json]);
                self.text += &format!("{rule}: {head} {rule}_value {}\n", self.join(&[end]));
                self.text += &format!("{rule}_value: %json {}\n", with_whitespace(member));
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

/// The names of the members that must be there.
fn required(schema: &Map<String, Value>) -> Vec<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
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
