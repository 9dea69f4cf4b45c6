//! OpenAI's error object.

use serde::Serialize;

/// The body of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorBody {
    /// The only field.
    pub error: ErrorObject,
}

/// What went wrong, for people and for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorObject {
    /// For people.
    pub message: String,
    /// A coarse kind, in OpenAI's words.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field at fault.
    pub param: Option<String>,
    /// A fine kind, for programs.
    pub code: Option<&'static str>,
}
