//! Decisions: questions about a state, each with the answers that it may have. What the APIs share.

pub mod openai;
pub mod systemone;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::fields::type_error;
use crate::error::ApiError;

/// Most questions of a request.
pub const QUESTIONS_MAX: usize = 400;
/// Most options of a choice.
pub const OPTIONS_MAX: usize = 255;
/// Most levels of a score.
pub const LEVELS_MAX: usize = 10;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Its field in the request, for errors.
    pub field: String,
    /// What is to be decided.
    pub instructions: Option<String>,
    /// The answers that it may have.
    pub kind: QuestionKind,
}

/// The answers that a question may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionKind {
    /// Whether it is true.
    Noul {
        /// What speaks for it.
        yes: Option<String>,
        /// What speaks against it.
        no: Option<String>,
    },
    /// One of these.
    Choice(Vec<ChoiceOption>),
    /// How far up a scale, whose lowest level is first.
    Score(Vec<String>),
}

/// An option of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ChoiceOption {
    pub name: String,
    pub description: Option<String>,
}

/// How the probabilities of answers are found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Readout {
    /// By a short label of each answer at the start of the reply.
    #[default]
    Labels,
    /// By the whole text of each answer.
    Options,
}

/// A text, or a value that the model reads as JSON.
pub fn text(at: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        value @ (Value::Array(_) | Value::Object(_)) => Ok(value.to_string()),
        other => Err(type_error(at, "a string, an object or a list", &other)),
    }
}

/// Fails for too few or too many entries of a list or an object.
pub fn check_count(at: &str, count: usize, (least, most): (usize, usize)) -> Result<(), ApiError> {
    match (least..=most).contains(&count) {
        true => Ok(()),
        false => Err(ApiError::invalid(
            at,
            format!("`{at}` must have between {least} and {most} entries, not {count}"),
        )),
    }
}

/// Serializes pairs as an object, in their order.
pub fn in_order<S: Serializer, K: Serialize, V: Serialize>(
    pairs: &[(K, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}
