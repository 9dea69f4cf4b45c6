//! OpenAI's error object.

use crate::error::{ApiError, ErrorKind};
use crate::response::JsonBody;
use crate::wire::error::{ErrorBody, ErrorObject};

/// The body of an error response.
pub fn error_body(error: &ApiError) -> JsonBody {
    JsonBody::of(&object(error))
}

pub(super) fn object(error: &ApiError) -> ErrorBody {
    ErrorBody {
        error: ErrorObject {
            message: error.message().to_owned(),
            kind: kind(error.kind()),
            param: error.param().map(str::to_owned),
            code: error.code(),
        },
    }
}

/// OpenAI's error types are fewer than our kinds.
fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest
        | ErrorKind::NotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::BodyTimeout
        | ErrorKind::Conflict
        | ErrorKind::TooLarge
        | ErrorKind::UnsupportedMediaType => "invalid_request_error",
        ErrorKind::Unauthorized => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::RateLimited => "rate_limit_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::Internal | ErrorKind::Unavailable => "server_error",
    }
}
