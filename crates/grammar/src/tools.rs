//! Grammars of tool calls: a message of calls as the model's format writes them.

mod arguments;
mod keywords;
mod notation;
mod text_value;
mod writer;

use omnibus_text::Tokenizer;
use omnibus_text::tool_calls::{NAME, WrittenCalls};
use serde_json::{Map, Value, json};

use crate::error::GrammarError;
use crate::grammar::Grammar;
use crate::lark;
use crate::limits::GrammarLimits;
use crate::schema::{self, SchemaUse};
use arguments::Arguments;
use writer::{Writer, json_value};

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
/// grammar would begin after it.
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
        Grammar::JsonObject => json_value(any_object()),
        Grammar::JsonSchema { schema: text, schema_use, .. } => {
            match schema::read(text, *schema_use, limits)?.schema {
                Value::Object(schema) => json_value(schema),
                _ => "%json {}".to_owned(),
            }
        }
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

/// A grammar of calls, or of a text without calls, for a format whose calls have no marker. `None` for others.
pub fn calls_or_text(
    written: &WrittenCalls,
    tools: &[Tool],
    count: CallCount,
    (tokenizer, limits): (&Tokenizer, &GrammarLimits),
) -> Result<Option<Grammar>, GrammarError> {
    let Some(answer) = written.answer else { return Ok(None) };
    let calls = rules(written, tools, (count, CallStart::Answer), tokenizer, limits)?;
    let begin = match answer.begin {
        "" => String::new(),
        begin => lark::literal(begin),
    };
    let text = format!("answer: {begin} TEXT?\nTEXT: /(.|\\n)+/ & ~/{}/\n", answer.calls);
    Ok(calls.map(|calls| Grammar::Lark(format!("start: calls | answer\n{text}{calls}"))))
}

/// The rules of calls, from the rule `calls`.
fn rules(
    written: &WrittenCalls,
    tools: &[Tool],
    (count, start): (CallCount, CallStart),
    tokenizer: &Tokenizer,
    limits: &GrammarLimits,
) -> Result<Option<String>, GrammarError> {
    let mut writer = Writer::new(tokenizer, limits);
    let first = [written.begin, written.name].concat();
    let from_name = format!("{NAME}{}", written.arguments);
    let (opening, head) = match start {
        CallStart::Answer => (first.as_str(), from_name.as_str()),
        CallStart::Marker if written.marker.is_empty() => return Ok(None),
        CallStart::Marker => match (first.split_once(written.marker), from_name.split_once(written.marker)) {
            (Some((_, behind)), _) => (behind, from_name.as_str()),
            (None, Some((_, behind))) => ("", behind),
            (None, None) => ("", from_name.as_str()),
        },
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
    writer.rule("calls", &format!("{reasoning} {opening} call {more} {end}"));
    let alternatives: Vec<String> = (0..tools.len()).map(|at| format!("call_{at}")).collect();
    writer.rule("call", &alternatives.join(" | "));
    for (at, tool) in tools.iter().enumerate() {
        let in_tool = |error: GrammarError| GrammarError { path: format!("[{at}].{}", error.path), ..error };
        writer.check_size().map_err(in_tool)?;
        writer.call(at, tool, (head, written));
        let arguments = Arguments { at, style: written.style, schema_use: tool.schema };
        match &tool.input {
            Some(input) => arguments.write_input(input, limits, &mut writer).map_err(in_tool)?,
            None => {
                let schema = parameters(tool, limits).map_err(in_tool)?;
                arguments.write(&schema, &mut writer).map_err(in_tool)?;
            }
        }
    }
    Ok(Some(writer.into_text()))
}

/// The schema of a tool's arguments, which are an object.
fn parameters(tool: &Tool, limits: &GrammarLimits) -> Result<Map<String, Value>, GrammarError> {
    let Some(schema) = &tool.parameters else { return Ok(any_object()) };
    let Value::Object(mut schema) = schema::read_value(schema, tool.schema, limits)?.schema else {
        return Ok(any_object());
    };
    // Schemas of tools leave out that arguments are an object.
    if !["type", "$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.contains_key(*key)) {
        schema.insert("type".to_owned(), json!("object"));
    }
    Ok(schema)
}

fn any_object() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object"))])
}
