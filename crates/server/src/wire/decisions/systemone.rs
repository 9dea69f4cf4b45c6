//! `POST /v1/systemone`: TypeSafe's decisions.
//!
//! Source: the models of `typesafe-sdk`, and the requirements of `jevcompat`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    ChoiceOption, LEVELS_MAX, OPTIONS_MAX, QUESTIONS_MAX, Question, QuestionKind, Readout, check_count,
    in_order, text,
};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured, refused, type_error};

/// Fields of a request. Others are tolerated.
pub const FIELDS: &[Field] = &[
    honoured("model", "any name: the loaded model serves unknown ones, as `jev-latest`"),
    honoured("state", "what is decided about: a string, an object or a list"),
    honoured("questions", "an object: a `noul`, a `choice` or a `score` by the key of its answer"),
    honoured(
        "x_readout",
        "an extension: `labels`, the default, compares labels at the start of the reply; `options` compares the whole texts of answers",
    ),
    refused("assets", "images are not read; describe them in `state`"),
];

/// Fields of a question.
const QUESTION: &[Field] = &[
    honoured("type", "`noul`, `choice` or `score`"),
    honoured("instructions", "what is to be decided"),
    honoured("criteria", "what the answers mean"),
];

/// Fields of the `criteria` of a `noul`.
const SIDES: &[Field] =
    &[honoured("true", "what speaks for it"), honoured("false", "what speaks against it")];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemOneRequest {
    /// As the client wrote it.
    pub model: Option<String>,
    #[allow(missing_docs)]
    pub state: String,
    /// In the order of the request.
    pub questions: Vec<NamedQuestion>,
    #[allow(missing_docs)]
    pub readout: Readout,
}

/// A question by the key of its answer, which the model does not see.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedQuestion {
    #[allow(missing_docs)]
    pub key: String,
    #[allow(missing_docs)]
    pub question: Question,
    /// The levels of a score as the client wrote them.
    pub legend: Vec<Value>,
}

/// The error of a form, which clients send with images alone.
pub fn images_refused() -> ApiError {
    ApiError::unsupported("assets", "`assets` is not supported: a form has images, which are not read")
}

impl SystemOneRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS])?;
        let model = fields.text("model")?;
        let state = fields.value("state");
        let state = text("state", fields.required("state", state)?)?;
        let readout = readout(fields.text("x_readout")?)?;
        let questions = fields.object("questions")?;
        let questions = fields.required("questions", questions)?;
        fields.finish();
        check_count("questions", questions.len(), (1, QUESTIONS_MAX))?;
        let questions = questions.into_iter().map(|(key, value)| question(key, value));
        Ok(Self { model, state, questions: questions.collect::<Result<_, _>>()?, readout })
    }
}

fn readout(name: Option<String>) -> Result<Readout, ApiError> {
    match name.as_deref() {
        None | Some("labels") => Ok(Readout::Labels),
        Some("options") => Ok(Readout::Options),
        Some(other) => {
            let message = format!("`x_readout` must be `labels` or `options`, not `{other}`");
            Err(ApiError::invalid("x_readout", message))
        }
    }
}

fn question(key: String, value: Value) -> Result<NamedQuestion, ApiError> {
    if key.is_empty() {
        return Err(ApiError::invalid("questions", "a key of `questions` is empty"));
    }
    let field = format!("questions.{key}");
    let mut fields = Fields::open(value, &field, &[QUESTION])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    let at = fields.at("instructions");
    let instructions = fields.value("instructions").map(|value| text(&at, value)).transpose()?;
    let at = fields.at("criteria");
    let (kind, legend) = match kind.as_str() {
        "noul" => (noul(&mut fields, instructions.is_some())?, Vec::new()),
        "choice" => {
            let criteria = fields.object("criteria")?;
            (choice(&at, fields.required("criteria", criteria)?)?, Vec::new())
        }
        "score" => {
            let criteria = fields.list("criteria")?;
            let legend = fields.required("criteria", criteria)?;
            (score(&at, legend.clone())?, legend)
        }
        other => {
            let at = fields.at("type");
            let message = format!("`{at}` must be `noul`, `choice` or `score`, not `{other}`");
            return Err(ApiError::unsupported(&at, message));
        }
    };
    fields.finish();
    Ok(NamedQuestion { key, question: Question { field, instructions, kind }, legend })
}

/// One with neither instructions nor a described side has no question.
fn noul(fields: &mut Fields, instructed: bool) -> Result<QuestionKind, ApiError> {
    let side = |name: &str, sides: &mut Option<Fields>| -> Result<Option<String>, ApiError> {
        let Some(sides) = sides else { return Ok(None) };
        let at = sides.at(name);
        sides.value(name).map(|value| text(&at, value)).transpose()
    };
    let mut sides = fields.nested("criteria", SIDES)?;
    let (yes, no) = (side("true", &mut sides)?, side("false", &mut sides)?);
    if !instructed && yes.is_none() && no.is_none() {
        let at = fields.at("instructions");
        let message = format!("`{at}` is missing, and `criteria` describes no side");
        return Err(ApiError::invalid(&at, message));
    }
    Ok(QuestionKind::Noul { yes, no })
}

fn choice(at: &str, criteria: Map<String, Value>) -> Result<QuestionKind, ApiError> {
    check_count(at, criteria.len(), (1, OPTIONS_MAX))?;
    let option = |(name, value): (String, Value)| {
        let description = match value {
            Value::Null => None,
            value => Some(text(&format!("{at}.{name}"), value)?),
        };
        Ok(ChoiceOption { name, description })
    };
    criteria.into_iter().map(option).collect::<Result<_, _>>().map(QuestionKind::Choice)
}

fn score(at: &str, levels: Vec<Value>) -> Result<QuestionKind, ApiError> {
    check_count(at, levels.len(), (1, LEVELS_MAX))?;
    let level = |(number, value): (usize, Value)| {
        let at = format!("{at}[{number}]");
        match value {
            // Clients cannot read a legend with a null.
            Value::Null => Err(type_error(&at, "a string, an object or a list", &value)),
            value => text(&at, value),
        }
    };
    levels.into_iter().enumerate().map(level).collect::<Result<_, _>>().map(QuestionKind::Score)
}

/// A response.
#[derive(Debug, Clone, Serialize)]
pub struct SystemOneResponse {
    /// The model that answered.
    pub model: String,
    /// By the keys of the questions.
    #[serde(serialize_with = "in_order")]
    pub answers: Vec<(String, Answer)>,
    #[allow(missing_docs)]
    pub usage: SystemOneUsage,
}

/// Tokens of a request.
#[derive(Debug, Clone, Serialize)]
pub struct SystemOneUsage {
    /// Of all prompts.
    pub input_tokens: usize,
    /// Zero: nothing is generated.
    pub output_tokens: usize,
    /// Tokens of prompts that were not computed: what questions have in common is computed once.
    pub x_cached_tokens: usize,
}

/// An answer.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Answer {
    Noul {
        /// How likely it is true.
        noul: f64,
        #[serde(flatten)]
        readout: ReadoutNumbers,
    },
    Choice {
        /// The most likely option.
        choice: String,
        #[serde(serialize_with = "in_order")]
        probabilities: Vec<(String, f64)>,
        confidence: f64,
        #[serde(flatten)]
        readout: ReadoutNumbers,
    },
    Score {
        /// The mean of the levels' numbers.
        score: f64,
        /// The levels by their numbers.
        #[serde(serialize_with = "in_order")]
        legend: Vec<(String, Value)>,
        #[serde(serialize_with = "in_order")]
        probabilities: Vec<(String, f64)>,
        confidence: f64,
        #[serde(flatten)]
        readout: ReadoutNumbers,
    },
}

/// What the probabilities were made of: extensions.
#[derive(Debug, Clone, Serialize)]
pub struct ReadoutNumbers {
    /// The probability that the reply begins with any of the labels, by labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_label_mass: Option<f64>,
    /// The logarithm of each answer's probability, in the order of the answers, by their texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_log_likelihoods: Option<Vec<f64>>,
}

/// An error's body.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody {
    #[allow(missing_docs)]
    pub detail: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum ErrorDetail {
    /// A part of the request is invalid.
    Invalid([InvalidPart; 1]),
    Failed {
        error_type: &'static str,
        message: String,
    },
}

/// An invalid part of a request.
#[derive(Debug, Clone, Serialize)]
pub struct InvalidPart {
    /// `body`, and the path in it.
    pub loc: Vec<String>,
    #[allow(missing_docs)]
    pub msg: String,
    /// A machine-readable code.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

#[cfg(test)]
mod tests;
