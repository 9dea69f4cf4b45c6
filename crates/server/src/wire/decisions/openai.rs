//! `POST /v1/decisions`: OpenAI's decisions.
//!
//! Source: `client.decisions.create` of openai 3.57.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{ChoiceOption, LEVELS_MAX, OPTIONS_MAX, QUESTIONS_MAX, Question, QuestionKind, check_count};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured, type_error};

/// Fields of a request.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("input", "what is decided about: a string, or messages of users with texts"),
    honoured("questions", "a list: each a `predicate`, a `choice` or a `score`"),
    harmless("safety_identifier", "keys name users"),
];

/// Fields of a question.
const QUESTION: &[Field] = &[
    honoured("type", "`predicate`, `choice` or `score`"),
    honoured("name", "stands in the answer; the model does not see it"),
    honoured("instructions", "what is to be decided"),
    honoured("choices", "of a `choice`"),
    honoured("levels", "of a `score`, the lowest first"),
];

/// Fields of an entry of `choices`.
const CHOICE: &[Field] =
    &[honoured("value", "a string, true or false"), honoured("description", "what it means")];

/// Fields of an entry of `levels`.
const LEVEL: &[Field] = &[honoured("label", "its name"), honoured("description", "what it means")];

/// Fields of a message.
const MESSAGE: &[Field] = &[
    honoured("type", "`message`"),
    honoured("role", "`user`"),
    honoured("content", "a string, or a list of `input_text`"),
];

/// Fields of a part of a message.
const PART: &[Field] = &[honoured("type", "`input_text`"), honoured("text", "a text")];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionsRequest {
    #[allow(missing_docs)]
    pub model: Option<String>,
    /// What is decided about.
    pub input: String,
    /// In the order of the request.
    pub questions: Vec<ListedQuestion>,
}

/// A question of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedQuestion {
    #[allow(missing_docs)]
    pub name: Option<String>,
    #[allow(missing_docs)]
    pub question: Question,
    /// The options' values, or the levels' labels, as the client wrote them.
    pub values: Vec<Value>,
}

impl DecisionsRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS])?;
        let model = fields.text("model")?;
        let value = fields.value("input");
        let input = input(fields.required("input", value)?)?;
        let questions = fields.list("questions")?;
        let questions = fields.required("questions", questions)?;
        fields.finish();
        check_count("questions", questions.len(), (1, QUESTIONS_MAX))?;
        let questions = questions.into_iter().enumerate().map(|(number, value)| question(number, value));
        Ok(Self { model, input, questions: questions.collect::<Result<_, _>>()? })
    }
}

/// The texts of all messages.
fn input(value: Value) -> Result<String, ApiError> {
    let messages = match value {
        Value::String(text) => return Ok(text),
        Value::Array(messages) => messages,
        other => return Err(type_error("input", "a string or a list", &other)),
    };
    let mut texts = Vec::new();
    for (number, message) in messages.into_iter().enumerate() {
        let mut fields = Fields::open(message, &format!("input[{number}]"), &[MESSAGE])?;
        let kind = fields.text("type")?;
        expect_word(&fields.at("type"), kind.as_deref().unwrap_or("message"), "message")?;
        let role = fields.text("role")?;
        expect_word(&fields.at("role"), &fields.required("role", role)?, "user")?;
        let at = fields.at("content");
        let content = fields.value("content");
        match fields.required("content", content)? {
            Value::String(text) => texts.push(text),
            Value::Array(parts) => {
                for (number, part) in parts.into_iter().enumerate() {
                    texts.push(part_text(&format!("{at}[{number}]"), part)?);
                }
            }
            other => return Err(type_error(&at, "a string or a list", &other)),
        }
        fields.finish();
    }
    Ok(texts.join("\n\n"))
}

fn part_text(at: &str, part: Value) -> Result<String, ApiError> {
    if part.get("type").and_then(Value::as_str) == Some("input_image") {
        return Err(ApiError::unsupported(at, format!("`{at}` is an image; decisions read texts only")));
    }
    let mut fields = Fields::open(part, at, &[PART])?;
    let kind = fields.text("type")?;
    expect_word(&fields.at("type"), &fields.required("type", kind)?, "input_text")?;
    let text = fields.text("text")?;
    fields.required("text", text)
}

fn expect_word(at: &str, word: &str, expected: &str) -> Result<(), ApiError> {
    match word == expected {
        true => Ok(()),
        false => Err(ApiError::unsupported(at, format!("`{at}` must be `{expected}`, not `{word}`"))),
    }
}

fn question(number: usize, value: Value) -> Result<ListedQuestion, ApiError> {
    let field = format!("questions[{number}]");
    let mut fields = Fields::open(value, &field, &[QUESTION])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    let name = fields.text("name")?;
    let instructions = fields.text("instructions")?;
    let instructions = Some(fields.required("instructions", instructions)?);
    let (kind, values) = match kind.as_str() {
        "predicate" => (QuestionKind::Noul { yes: None, no: None }, Vec::new()),
        "choice" => choices(&mut fields)?,
        "score" => levels(&mut fields)?,
        other => {
            let at = fields.at("type");
            let message = format!("`{at}` must be `predicate`, `choice` or `score`, not `{other}`");
            return Err(ApiError::unsupported(&at, message));
        }
    };
    fields.refuse_rest("belongs to a question of another type")?;
    Ok(ListedQuestion { name, question: Question { field, instructions, kind }, values })
}

fn choices(fields: &mut Fields) -> Result<(QuestionKind, Vec<Value>), ApiError> {
    let at = fields.at("choices");
    let list = fields.list("choices")?;
    let list = fields.required("choices", list)?;
    check_count(&at, list.len(), (2, OPTIONS_MAX))?;
    let (mut options, mut values, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (number, choice) in list.into_iter().enumerate() {
        let mut fields = Fields::open(choice, &format!("{at}[{number}]"), &[CHOICE])?;
        let at = fields.at("value");
        let value = fields.value("value");
        let value = fields.required("value", value)?;
        let name = match &value {
            Value::String(text) => text.clone(),
            Value::Bool(value) => value.to_string(),
            other => return Err(type_error(&at, "a string, true or false", other)),
        };
        if !seen.insert(name.clone()) {
            return Err(ApiError::invalid(&at, format!("`{at}` is the value of another choice")));
        }
        options.push(ChoiceOption { name, description: description(&mut fields)? });
        values.push(value);
    }
    Ok((QuestionKind::Choice(options), values))
}

fn levels(fields: &mut Fields) -> Result<(QuestionKind, Vec<Value>), ApiError> {
    let at = fields.at("levels");
    let list = fields.list("levels")?;
    let list = fields.required("levels", list)?;
    check_count(&at, list.len(), (2, LEVELS_MAX))?;
    let (mut levels, mut labels) = (Vec::new(), Vec::new());
    for (number, level) in list.into_iter().enumerate() {
        let mut fields = Fields::open(level, &format!("{at}[{number}]"), &[LEVEL])?;
        let label = fields.text("label")?;
        let label = fields.required("label", label)?;
        levels.push(match description(&mut fields)? {
            Some(description) => format!("{label} - {description}"),
            None => label.clone(),
        });
        labels.push(Value::String(label));
    }
    Ok((QuestionKind::Score(levels), labels))
}

fn description(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    Ok(fields.text("description")?.filter(|description| !description.is_empty()))
}

/// A response.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionsResponse {
    /// As the client named it.
    pub model: String,
    /// In the order of the questions.
    pub answers: Vec<Answer>,
    #[allow(missing_docs)]
    pub usage: DecisionsUsage,
}

/// An answer.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Answer {
    Predicate {
        name: Option<String>,
        probability: f64,
    },
    Choice {
        name: Option<String>,
        /// The most likely value.
        choice: Value,
        probabilities: Vec<ChoiceProbability>,
        confidence: f64,
    },
    Score {
        name: Option<String>,
        score: f64,
        probabilities: Vec<LevelProbability>,
        confidence: f64,
    },
}

/// How likely a choice is.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct ChoiceProbability {
    pub value: Value,
    pub probability: f64,
}

/// How likely a level is.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct LevelProbability {
    /// Its number.
    pub value: usize,
    pub label: Value,
    pub probability: f64,
}

/// Tokens of a request.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionsUsage {
    /// Of all prompts.
    pub input_tokens: usize,
    #[allow(missing_docs)]
    pub input_tokens_details: InputDetails,
    /// Zero: nothing is generated.
    pub output_tokens: usize,
    #[allow(missing_docs)]
    pub output_tokens_details: OutputDetails,
    /// `input_tokens`.
    pub total_tokens: usize,
}

/// Of `input_tokens`.
#[derive(Debug, Clone, Serialize)]
pub struct InputDetails {
    /// Tokens that were not computed: what questions have in common is computed once.
    pub cached_tokens: usize,
    /// Zero: it is not counted.
    pub cache_write_tokens: usize,
}

/// Of `output_tokens`.
#[derive(Debug, Clone, Serialize)]
pub struct OutputDetails {
    /// Zero.
    pub reasoning_tokens: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<DecisionsRequest, String> {
        DecisionsRequest::read(body).map_err(|error| error.param().unwrap_or_default().to_owned())
    }

    fn with(question: Value) -> Result<DecisionsRequest, String> {
        read(json!({"model": "m", "input": "s", "questions": [question]}))
    }

    #[test]
    fn input_is_a_text_or_messages() {
        let parts = json!([{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]);
        let messages = json!([{"role": "user", "content": "a"}, {"role": "user", "content": parts}]);
        let question = json!({"type": "predicate", "name": "n", "instructions": "i"});
        let request = read(json!({"input": messages, "questions": [question]})).unwrap();
        assert_eq!(request.input, "a\n\nb\n\nc");
        assert_eq!(request.questions[0].name.as_deref(), Some("n"));
    }

    #[test]
    fn choices_and_levels_have_values_and_descriptions() {
        let choices = json!([{"value": true}, {"value": "no", "description": "d"}]);
        let request = with(json!({"type": "choice", "instructions": "i", "choices": choices})).unwrap();
        let QuestionKind::Choice(options) = &request.questions[0].question.kind else { panic!("a choice") };
        assert_eq!((options[0].name.as_str(), options[1].description.as_deref()), ("true", Some("d")));
        assert_eq!(request.questions[0].values, [json!(true), json!("no")]);
        let levels = json!([{"label": "low"}, {"label": "high", "description": "d"}]);
        let request = with(json!({"type": "score", "instructions": "i", "levels": levels})).unwrap();
        let expected = ["low".to_owned(), "high - d".to_owned()];
        assert_eq!(request.questions[0].question.kind, QuestionKind::Score(expected.into()));
    }

    #[test]
    fn what_is_refused_names_its_field() {
        let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
        let predicate = json!([{"type": "predicate", "instructions": "i"}]);
        for (body, field) in [
            (json!({"questions": predicate}), "input"),
            (json!({"input": 5, "questions": predicate}), "input"),
            (json!({"input": image, "questions": predicate}), "input[0].content[0]"),
            (json!({"input": [{"role": "system", "content": "x"}], "questions": predicate}), "input[0].role"),
            (json!({"input": "s", "questions": []}), "questions"),
            (json!({"input": "s", "questions": {}}), "questions"),
            (json!({"input": "s", "questions": predicate, "seed": 1}), "seed"),
        ] {
            assert_eq!(read(body.clone()).map(|_| ()), Err(field.to_owned()), "{body}");
        }
        let one = json!([{"value": "a"}]);
        let twice = json!([{"value": "a"}, {"value": "a"}]);
        let number = json!([{"value": "a"}, {"value": 1}]);
        for (question, field) in [
            (json!({"type": "predicate"}), "questions[0].instructions"),
            (json!({"type": "noul", "instructions": "i"}), "questions[0].type"),
            (json!({"type": "predicate", "instructions": "i", "levels": []}), "questions[0].levels"),
            (json!({"type": "choice", "instructions": "i"}), "questions[0].choices"),
            (json!({"type": "choice", "instructions": "i", "choices": one}), "questions[0].choices"),
            (
                json!({"type": "choice", "instructions": "i", "choices": twice}),
                "questions[0].choices[1].value",
            ),
            (
                json!({"type": "choice", "instructions": "i", "choices": number}),
                "questions[0].choices[1].value",
            ),
            (
                json!({"type": "score", "instructions": "i", "levels": [{"label": "x"}]}),
                "questions[0].levels",
            ),
        ] {
            assert_eq!(with(question.clone()).map(|_| ()), Err(field.to_owned()), "{question}");
        }
    }
}
