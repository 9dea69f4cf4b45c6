//! What an answer must match: OpenAI's `response_format`, and vLLM's `structured_outputs` and `guided_*`.

use serde_json::{Map, Value};

use super::fields::{Field, Fields, harmless, honoured, refused, type_error};
use crate::error::ApiError;

/// Fields that chat and text completions share.
pub const FIELDS: &[Field] = &[
    honoured(
        "response_format",
        "`text`, `json_object`, or `json_schema` with a schema that the answer matches",
    ),
    honoured("structured_outputs", "vLLM's: one of `json`, `json_object`, `regex`, `choice`, `grammar`"),
    honoured("guided_json", "vLLM's older form: a JSON schema, as an object or as text"),
    honoured("guided_regex", "vLLM's older form: a regular expression for the whole answer"),
    honoured("guided_choice", "vLLM's older form: a list of texts, one of which is the answer"),
    honoured("guided_grammar", "vLLM's older form: a grammar in Lark's notation, from the rule `start`"),
    harmless("guided_decoding_backend", "there is one grammar engine, llguidance"),
    refused("guided_whitespace_pattern", "use `structured_outputs` with `disable_any_whitespace`"),
];

/// Fields of `response_format`.
pub const RESPONSE_FORMAT: &[Field] = &[
    honoured("type", "`text`, `json_object` or `json_schema`"),
    honoured("json_schema", "with `json_schema`: the schema and its name"),
    honoured(
        "schema",
        "the schema itself, as llama.cpp and Together take it with `json_object` or `json_schema`",
    ),
    harmless("name", "a label"),
    honoured("strict", "true: a 400 for a schema of which a keyword cannot be enforced"),
];

/// Fields of `response_format.json_schema`.
pub const JSON_SCHEMA: &[Field] = &[
    honoured("schema", "the schema; absent is any JSON object"),
    harmless("name", "a label"),
    harmless("description", "tell the model in a message what the format is for"),
    honoured("strict", "true: a 400 for a schema of which a keyword cannot be enforced"),
];

/// Fields of `structured_outputs`.
pub const STRUCTURED_OUTPUTS: &[Field] = &[
    honoured("json", "a JSON schema, as an object or as text"),
    honoured("json_object", "true: any JSON object"),
    honoured("regex", "a regular expression for the whole answer"),
    honoured("choice", "a list of texts, one of which is the answer"),
    honoured("grammar", "a grammar in Lark's notation, from the rule `start`"),
    honoured("disable_any_whitespace", "true: JSON without whitespace between its tokens"),
    harmless("disable_fallback", "there is one grammar engine"),
    refused("disable_additional_properties", "state `additionalProperties` in the schema"),
    refused("whitespace_pattern", "use `disable_any_whitespace`"),
    refused("structural_tag", "use `tools`"),
];

/// Most choices of `choice`.
pub const CHOICES_MAX: usize = 10_000;

/// What an answer must match.
#[derive(Debug, Clone, PartialEq)]
pub struct StructuredOutput {
    /// The grammar.
    pub grammar: Grammar,
    /// The field that holds it, for errors.
    pub field: String,
}

/// A grammar.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema allows.
    JsonSchema(Value, Whitespace, Enforced),
    /// A regular expression.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in Lark's notation.
    Lark(String),
}

/// Whitespace between JSON's tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Whitespace {
    /// As models write it.
    #[default]
    Usual,
    /// None.
    None,
}

/// What of a schema is enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforced {
    /// All of it, or the request is refused: `strict: true`.
    All,
    /// What can be. The rest is named in a header of the response.
    #[default]
    Possible,
}

impl Enforced {
    /// What a field `strict` means.
    pub fn of_strict(strict: Option<bool>) -> Self {
        if strict == Some(true) { Self::All } else { Self::Possible }
    }
}

/// Takes the fields of [`FIELDS`] out of a body. At most one of them may limit the answer.
pub fn read(fields: &mut Fields) -> Result<Option<StructuredOutput>, ApiError> {
    let found = [response_format(fields)?, structured_outputs(fields)?, guided(fields)?];
    let mut found = found.into_iter().flatten();
    match (found.next(), found.next()) {
        (first, None) => Ok(first),
        (_, Some(second)) => Err(several(&second.field)),
    }
}

fn several(at: &str) -> ApiError {
    ApiError::invalid(
        at,
        format!("`{at}` comes beside another field that limits the answer; send one of them"),
    )
}

fn response_format(fields: &mut Fields) -> Result<Option<StructuredOutput>, ApiError> {
    let Some(mut format) = fields.nested("response_format", RESPONSE_FORMAT)? else { return Ok(None) };
    let kind = format.text("type")?;
    let schema = format.nested("json_schema", JSON_SCHEMA)?;
    let own_strict = Enforced::of_strict(format.flag("strict")?);
    let at = "response_format";
    let kind = format.required("type", kind)?;
    if let (None, "json_object" | "json_schema", Some(own)) = (&schema, kind.as_str(), format.value("schema"))
    {
        return json_schema(own, (Whitespace::Usual, own_strict), format.at("schema")).map(Some);
    }
    let grammar = match (kind.as_str(), schema) {
        ("text", _) => return Ok(None),
        ("json_object", _) => Grammar::JsonObject,
        ("json_schema", Some(mut schema)) => {
            let at = schema.at("schema");
            let enforced = Enforced::of_strict(schema.flag("strict")?);
            let Some(schema) = schema.value("schema") else {
                return Ok(Some(StructuredOutput { grammar: Grammar::JsonObject, field: at }));
            };
            return Ok(Some(json_schema(schema, (Whitespace::Usual, enforced), at)?));
        }
        ("json_schema", None) => {
            let at = format.at("json_schema");
            return Err(ApiError::invalid(&at, format!("`{at}` is missing")));
        }
        (other, _) => {
            let at = format.at("type");
            let message = format!("`{at}` must be text, json_object or json_schema, not `{other}`");
            return Err(ApiError::unsupported(&at, message));
        }
    };
    Ok(Some(StructuredOutput { grammar, field: at.to_owned() }))
}

/// A schema as an object, or as its text.
pub fn json_schema(
    value: Value,
    (whitespace, enforced): (Whitespace, Enforced),
    field: String,
) -> Result<StructuredOutput, ApiError> {
    let schema = match value {
        Value::Object(_) | Value::Bool(_) => value,
        Value::String(text) => super::json::parse(text.as_bytes())
            .map_err(|error| ApiError::invalid(&field, format!("`{field}`: {}", error.message())))?,
        other => return Err(type_error(&field, "a JSON schema", &other)),
    };
    Ok(StructuredOutput { grammar: Grammar::JsonSchema(schema, whitespace, enforced), field })
}

fn structured_outputs(fields: &mut Fields) -> Result<Option<StructuredOutput>, ApiError> {
    let Some(mut options) = fields.nested("structured_outputs", STRUCTURED_OUTPUTS)? else { return Ok(None) };
    let whitespace = match options.flag("disable_any_whitespace")? {
        Some(true) => Whitespace::None,
        Some(false) | None => Whitespace::Usual,
    };
    let json = match options.value("json") {
        Some(schema) => Some(json_schema(schema, (whitespace, Enforced::Possible), options.at("json"))?),
        None => None,
    };
    let object = match options.flag("json_object")? {
        Some(true) if whitespace == Whitespace::None => {
            let schema = Value::Object(Map::from_iter([("type".to_owned(), "object".into())]));
            Some(json_schema(schema, (whitespace, Enforced::Possible), options.at("json_object"))?)
        }
        Some(true) => {
            Some(StructuredOutput { grammar: Grammar::JsonObject, field: options.at("json_object") })
        }
        Some(false) | None => None,
    };
    let names = Names { regex: "regex", choice: "choice", grammar: "grammar" };
    let texts = texts(&mut options, &names)?;
    let mut found = [json, object].into_iter().chain(texts).flatten();
    match (found.next(), found.next()) {
        (Some(first), None) => Ok(Some(first)),
        (Some(_), Some(second)) => Err(several(&second.field)),
        (None, _) => {
            let message = "`structured_outputs` needs one of json, json_object, regex, choice and grammar";
            Err(ApiError::invalid("structured_outputs", message))
        }
    }
}

fn guided(fields: &mut Fields) -> Result<Option<StructuredOutput>, ApiError> {
    let json = match fields.value("guided_json") {
        Some(schema) => Some(json_schema(schema, Default::default(), "guided_json".to_owned())?),
        None => None,
    };
    let names = Names { regex: "guided_regex", choice: "guided_choice", grammar: "guided_grammar" };
    let texts = texts(fields, &names)?;
    let mut found = std::iter::once(json).chain(texts).flatten();
    match (found.next(), found.next()) {
        (first, None) => Ok(first),
        (_, Some(second)) => Err(several(&second.field)),
    }
}

/// The names of the fields that hold no schema.
struct Names {
    regex: &'static str,
    choice: &'static str,
    grammar: &'static str,
}

fn texts(fields: &mut Fields, names: &Names) -> Result<[Option<StructuredOutput>; 3], ApiError> {
    let regex = fields.text(names.regex)?.map(Grammar::Regex);
    let lark = fields.text(names.grammar)?.map(Grammar::Lark);
    let at = fields.at(names.choice);
    let choice = fields.list(names.choice)?.map(|list| choices(list, &at)).transpose()?;
    let output = |grammar: Option<Grammar>, name: &str| {
        grammar.map(|grammar| StructuredOutput { grammar, field: fields.at(name) })
    };
    Ok([
        output(regex, names.regex),
        output(choice.map(Grammar::Choice), names.choice),
        output(lark, names.grammar),
    ])
}

fn choices(list: Vec<Value>, at: &str) -> Result<Vec<String>, ApiError> {
    if list.is_empty() || list.len() > CHOICES_MAX {
        return Err(ApiError::invalid(at, format!("`{at}` must have between 1 and {CHOICES_MAX} entries")));
    }
    let text = |(index, value): (usize, Value)| match value {
        Value::String(text) => Ok(text),
        other => Err(type_error(&format!("{at}[{index}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(text).collect()
}
