//! A refusal as a client sees it: a status, and OpenAI's error object.
//!
//! Invariant: whatever goes wrong in a route leaves as one of these, so every error has one shape.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use omnibus_engine::Failure;

use crate::wire::error::{ErrorBody, ErrorObject};

/// Why a request got no answer. Built with the constructors below, one a remedy.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    status: StatusCode,
    object: ErrorObject,
    retry_after_s: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        let object = ErrorObject { message: message.into(), kind, param: None, code: Some(code) };
        Self { status, object, retry_after_s: None }
    }

    /// 400: change this field.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::malformed(message).with_param(param).with_code("invalid_value")
    }

    /// 400: nobody here knows this field.
    pub fn unknown_field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::malformed(message).with_param(param).with_code("unknown_field")
    }

    /// 400: the field means something, but it cannot be had here.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::malformed(message).with_param(param).with_code("unsupported_value")
    }

    /// 400: not even a request.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", "invalid_json", message)
    }

    /// 401: say who you are.
    pub fn unauthorized() -> Self {
        let message = "a valid API key is needed, as `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "invalid_api_key", message)
    }

    /// 404: nothing by that name.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
    }

    /// 405: the route has other methods.
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "method_not_allowed", message)
    }

    /// 408: the body never came.
    pub fn body_timeout(after_s: u64) -> Self {
        let message = format!("the request body did not arrive within {after_s} s");
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", "request_timeout", message)
    }

    /// 413: send less.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", "request_too_large", message)
    }

    /// 415: send JSON.
    pub fn unsupported_media(message: impl Into<String>) -> Self {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, "invalid_request_error", "unsupported_media_type", message)
    }

    /// 500: ours to mend.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal_error", message)
    }

    /// 503: come back later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "unavailable", message);
        Self { retry_after_s: Some(UNAVAILABLE_RETRY_S), ..error }
    }

    /// Names the field at fault, unless one is named already.
    pub fn or_param(self, param: &str) -> Self {
        if self.object.param.is_some() { self } else { self.with_param(param) }
    }

    /// What a metric calls it.
    pub fn outcome(&self) -> &'static str {
        self.object.code.unwrap_or("error")
    }

    /// The body, for a stream that can no longer change its status.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.object.clone() }
    }

    fn with_param(mut self, param: impl Into<String>) -> Self {
        self.object.param = Some(param.into());
        self
    }

    fn with_code(mut self, code: &'static str) -> Self {
        self.object.code = Some(code);
        self
    }
}

/// What `Retry-After` says when nobody can estimate.
const UNAVAILABLE_RETRY_S: u64 = 5;

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let message = failure.to_string();
        match failure {
            Failure::BadRequest { field, .. } => Self::invalid(field, message),
            Failure::UnknownModel { .. } => {
                let error =
                    Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "model_not_found", message);
                error.with_param("model")
            }
            Failure::TooLong { .. } => Self::malformed(message).with_code("context_length_exceeded"),
            Failure::Busy { retry_after_s } => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                let error = Self::new(status, "rate_limit_error", "queue_full", message);
                Self { retry_after_s: Some(retry_after_s.max(1)), ..error }
            }
            Failure::Timeout { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", "timeout", message)
            }
            Failure::Unavailable { retry_after_s, .. } => {
                let error = Self::unavailable(message);
                Self { retry_after_s: retry_after_s.or(error.retry_after_s), ..error }
            }
            Failure::Engine { .. } => Self::internal(message),
        }
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::malformed(rejection.body_text()).with_code("invalid_path")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        debug_assert!(!headers.contains_key(ALLOW), "the router knows the methods of a route");
        response.extensions_mut().insert(Refused(self));
        response
    }
}

/// Left on a response so that metrics and logs can say why.
#[derive(Debug, Clone)]
pub struct Refused(pub ApiError);

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(failure: Failure, expected: Expect) {
        let error = ApiError::from(failure);
        let body = serde_json::to_string(&error.body()).unwrap();
        expected.assert_eq(&format!("{} {:?} {body}", error.status.as_u16(), error.retry_after_s));
    }

    #[test]
    fn each_failure_has_a_status_and_says_what_to_do() {
        check(
            Failure::bad_request("top_p", "top_p must be above 0 and at most 1"),
            expect![[
                r#"400 None {"error":{"message":"top_p must be above 0 and at most 1","type":"invalid_request_error","param":"top_p","code":"invalid_value"}}"#
            ]],
        );
        check(
            Failure::UnknownModel { model: "gpt-4".into() },
            expect![[
                r#"404 None {"error":{"message":"the model `gpt-4` is not served here","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
            ]],
        );
        check(
            Failure::TooLong { message: "9 tokens do not fit 8".into() },
            expect![[
                r#"400 None {"error":{"message":"9 tokens do not fit 8","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#
            ]],
        );
        check(
            Failure::Busy { retry_after_s: 0 },
            expect![[
                r#"429 Some(1) {"error":{"message":"the queue is full; retry in 0 s","type":"rate_limit_error","param":null,"code":"queue_full"}}"#
            ]],
        );
        check(
            Failure::Timeout { after_s: 2.5 },
            expect![[
                r#"504 None {"error":{"message":"the request timed out after 2.5 s","type":"timeout_error","param":null,"code":"timeout"}}"#
            ]],
        );
        check(
            Failure::Unavailable { message: "stopping".into(), retry_after_s: None },
            expect![[
                r#"503 Some(5) {"error":{"message":"the server is not taking requests: stopping","type":"server_error","param":null,"code":"unavailable"}}"#
            ]],
        );
        check(
            Failure::Unavailable { message: "its model is gone".into(), retry_after_s: Some(60) },
            expect![[
                r#"503 Some(60) {"error":{"message":"the server is not taking requests: its model is gone","type":"server_error","param":null,"code":"unavailable"}}"#
            ]],
        );
        check(
            Failure::Engine { message: "out of memory".into() },
            expect![[
                r#"500 None {"error":{"message":"the engine failed: out of memory","type":"server_error","param":null,"code":"internal_error"}}"#
            ]],
        );
    }
}
