//! OpenAI's error object.

use serde::Serialize;

/// The body of every response that is not 2xx.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorBody {
    /// The only field.
    pub error: ErrorObject,
}

/// OpenAI's error object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorObject {
    /// Human-readable description.
    pub message: String,
    /// Error type, one of OpenAI's.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The invalid field, if one is.
    pub param: Option<String>,
    /// Machine-readable code.
    pub code: &'static str,
}
