//! Anthropic's error object, with the words that its clients look for.

use crate::error::{ApiError, ErrorKind, Overflow};
use crate::request_id::RequestId;
use crate::response::JsonBody;
use crate::wire::anthropic::response::{ErrorBody, ErrorObject};

/// The body of an error response.
pub fn error_body(error: &ApiError, request_id: &RequestId) -> JsonBody {
    JsonBody::of(&ErrorBody { kind: "error", error: object(error), request_id: &request_id.0 })
}

pub(super) fn object(error: &ApiError) -> ErrorObject {
    let message = error.overflow().map_or_else(|| error.message().to_owned(), too_long);
    ErrorObject { kind: kind(error.kind()), message }
}

/// Clients read the numbers out of these sentences, and shorten the conversation or the answer by them.
fn too_long(Overflow { prompt_tokens, completion_tokens, limit }: Overflow) -> String {
    if prompt_tokens >= limit {
        return format!("prompt is too long: {prompt_tokens} tokens > {limit} maximum");
    }
    format!(
        "input length and `max_tokens` exceed context limit: {prompt_tokens} + {completion_tokens} > {limit}, \
         decrease input length or `max_tokens` and try again"
    )
}

fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest
        | ErrorKind::MethodNotAllowed
        | ErrorKind::BodyTimeout
        | ErrorKind::Conflict
        | ErrorKind::UnsupportedMediaType => "invalid_request_error",
        ErrorKind::Unauthorized => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::NotFound => "not_found_error",
        ErrorKind::TooLarge => "request_too_large",
        ErrorKind::RateLimited => "rate_limit_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::Internal => "api_error",
        ErrorKind::Unavailable => "overloaded_error",
    }
}
