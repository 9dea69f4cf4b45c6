//! Ollama's error object.

use crate::error::{ApiError, ErrorKind};
use crate::response::JsonBody;
use crate::wire::ollama::response::ErrorLine;

/// Clients look for this in the text of an error to know that a model is missing.
const NOT_FOUND: &str = "not found";

/// The body of an error response, and the line of one in a stream.
pub fn error_body(error: &ApiError) -> JsonBody {
    JsonBody::of(&object(error))
}

pub(super) fn object(error: &ApiError) -> ErrorLine {
    let message = error.message();
    let error = match error.kind() {
        ErrorKind::NotFound if !message.contains(NOT_FOUND) => format!("{NOT_FOUND}: {message}"),
        _ => message.to_owned(),
    };
    ErrorLine { error }
}
