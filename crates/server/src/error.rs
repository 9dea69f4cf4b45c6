//! API errors: one type for all APIs, rendered in the format of the route's API.
//!
//! Invariant: every failure of a route leaves as an [`ApiError`]; nothing here knows an API's format.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use omnibus_engine::Failure;

use crate::json_body::JsonBody;
use crate::request_id::RequestId;

/// Why a request failed. Built with the constructors below, one per remedy.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    kind: ErrorKind,
    code: &'static str,
    message: String,
    param: Option<String>,
    retry_after: Option<Duration>,
    overflow: Option<Overflow>,
    log: LogState,
}

/// Whether an error is in the log already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogState {
    /// It is logged with the response.
    Pending,
    /// The engine has logged it.
    Logged,
}

/// The sizes of a request that does not fit the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the completion, at most.
    pub completion_tokens: usize,
    /// Most tokens of both.
    pub limit: usize,
}

/// The kind of an error. It determines the status, and the type in an API's error format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// 400: the request is invalid.
    InvalidRequest,
    /// 401: the API key is missing or wrong.
    Unauthorized,
    /// 403: the client may not do this.
    Forbidden,
    /// 404: the route, model or object does not exist.
    NotFound,
    /// 405: the route has other methods.
    MethodNotAllowed,
    /// 408: the body did not arrive in time.
    BodyTimeout,
    /// 409: the object's state does not allow it.
    Conflict,
    /// 413: the body is too large.
    TooLarge,
    /// 415: the body is not JSON.
    UnsupportedMediaType,
    /// 429: the queue is full, the server is busy, or the key is at a limit.
    RateLimited,
    /// 500: a bug, or a failure of the engine.
    Internal,
    /// 503: the server is starting, stopping or restarting its engine.
    Unavailable,
    /// 504: the request's time limit passed.
    Timeout,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl ApiError {
    fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            code,
            message: message.into(),
            param: None,
            retry_after: None,
            overflow: None,
            log: LogState::Pending,
        }
    }

    /// The end of a generation that failed after it was submitted. The engine has logged it.
    pub fn of_generation(failure: Failure) -> Self {
        Self { log: LogState::Logged, ..Self::from(failure) }
    }

    /// 400: a field has an invalid value.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, "invalid_value", message).with_param(param)
    }

    /// 400: a field is unknown.
    pub fn unknown_field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, "unknown_field", message).with_param(param)
    }

    /// 400: a field has a valid value that this server does not support.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, "unsupported_value", message).with_param(param)
    }

    /// 400: the body is not valid JSON.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, "invalid_json", message)
    }

    /// 401: the API key is missing or wrong.
    pub fn unauthorized() -> Self {
        let message = "a valid API key is required, as `Authorization: Bearer KEY`";
        Self::new(ErrorKind::Unauthorized, "invalid_api_key", message)
    }

    /// 403: the client may not do this, whatever it sends.
    pub fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, code, message)
    }

    /// 404: the route or object does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, "not_found", message)
    }

    /// 404: a field names an object that does not exist.
    pub fn unknown_object(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::not_found(message).with_param(param)
    }

    /// 405: the route has other methods.
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::MethodNotAllowed, "method_not_allowed", message)
    }

    /// 408: the body did not arrive in time.
    pub fn body_timeout(after_s: u64) -> Self {
        let message = format!("the request body did not arrive within {after_s} s");
        Self::new(ErrorKind::BodyTimeout, "request_timeout", message)
    }

    /// 409: the object's state does not allow it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, "conflict", message)
    }

    /// 413: the body is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, "request_too_large", message)
    }

    /// 415: the body is not JSON.
    pub fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::UnsupportedMediaType, "unsupported_media_type", message)
    }

    /// 500: a bug, or a failure of the engine.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "internal_error", message)
    }

    /// 503: the server does not accept requests at the moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let error = Self::new(ErrorKind::Unavailable, "unavailable", message);
        Self { retry_after: Some(UNAVAILABLE_RETRY), ..error }
    }

    /// 429: others take all that there is for the moment.
    pub fn busy(message: impl Into<String>) -> Self {
        let error = Self::new(ErrorKind::RateLimited, "busy", message);
        Self { retry_after: Some(BUSY_RETRY), ..error }
    }

    /// 429: the key is at a limit, for this long.
    pub fn limited(message: impl Into<String>, wait: Duration) -> Self {
        let error = Self::new(ErrorKind::RateLimited, "rate_limit_exceeded", message);
        Self { retry_after: Some(wait), ..error }
    }

    /// This error with another code.
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Names the field at fault of an error that names none, if the error is about the input's length.
    pub fn with_input_param(self, param: &str) -> Self {
        if self.code == CONTEXT_LENGTH && self.param.is_none() { self.with_param(param) } else { self }
    }

    /// Names another field than `model` as the one with the name of an unknown model.
    pub fn with_model_param(self, param: &str) -> Self {
        if self.param.as_deref() == Some("model") { self.with_param(param) } else { self }
    }

    /// This error about another field, which has the one's meaning in an older form of the API.
    pub fn about(self, field: &str, older: &str) -> Self {
        let message = self.message.replace(field, older);
        Self { message, param: self.param.map(|param| param.replace(field, older)), ..self }
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// A machine-readable code, also the value of the `outcome` label.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// A human-readable description.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The description, unless it is in the log already.
    pub fn unlogged_message(&self) -> Option<&str> {
        (self.log == LogState::Pending).then_some(&*self.message)
    }

    /// The field at fault.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The sizes, if the request does not fit the context.
    pub fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    /// When to retry, in whole seconds.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_millis().div_ceil(1_000) as u64)
    }

    /// Names the field at fault.
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }
}

/// `Retry-After` when there is no estimate.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(5);
/// `Retry-After` of what is busy for moments.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// The code of a prompt that does not fit the context.
const CONTEXT_LENGTH: &str = "context_length_exceeded";

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let (message, retry_after) = (failure.to_string(), failure.retry_after_s().map(Duration::from_secs));
        match failure {
            Failure::BadRequest { field, .. } => Self::invalid(field, message),
            Failure::UnknownModel { .. } => {
                Self::new(ErrorKind::NotFound, "model_not_found", message).with_param("model")
            }
            Failure::TooLong { prompt_tokens, completion_tokens, limit } => {
                let overflow = Some(Overflow { prompt_tokens, completion_tokens, limit });
                Self { overflow, ..Self::new(ErrorKind::InvalidRequest, CONTEXT_LENGTH, message) }
            }
            Failure::Busy { .. } => {
                let error = Self::new(ErrorKind::RateLimited, "queue_full", message);
                Self { retry_after, ..error }
            }
            Failure::Timeout { .. } => Self::new(ErrorKind::Timeout, "timeout", message),
            Failure::Unavailable { .. } | Failure::ModelUnavailable { .. } => {
                let error = Self::unavailable(message);
                Self { retry_after: retry_after.or(error.retry_after), ..error }
            }
            Failure::Engine { .. } => Self::internal(message),
        }
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(ErrorKind::InvalidRequest, "invalid_path", rejection.body_text())
    }
}

/// A response without a body, which [`render`] adds.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        let headers = response.headers_mut();
        if let Some((seconds, wait)) = self.retry_after_s().zip(self.retry_after) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            // OpenAI's and Anthropic's clients read the first of these before `retry-after`, and the second before the status.
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            headers.insert("retry-after-ms", HeaderValue::from(millis));
            headers.insert("x-should-retry", HeaderValue::from_static("true"));
        }
        if self.kind == ErrorKind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Failed(self));
        response
    }
}

/// The error of a failed response, for rendering, metrics and logs.
#[derive(Debug, Clone)]
pub struct Failed(pub ApiError);

/// The error format of the routes below a path.
#[derive(Debug, Clone, Copy)]
pub struct ErrorFormat {
    /// The prefix of the routes' paths.
    pub path: &'static str,
    /// Renders the error of a request as a body.
    pub render: fn(&ApiError, &RequestId) -> JsonBody,
    /// The status of each kind of error: [`ErrorKind::status`], unless the API has others.
    pub status: fn(ErrorKind) -> StatusCode,
}

/// Adds the body to error responses, in the format of the longest path that is a prefix of the request's.
pub async fn render(State(formats): State<&'static [ErrorFormat]>, request: Request, next: Next) -> Response {
    let format = format_of(formats, request.uri().path());
    let request_id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let mut response = next.run(request).await;
    let failed = response.extensions().get::<Failed>().cloned();
    if let (Some(format), Some(Failed(error))) = (format, failed) {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *response.status_mut() = (format.status)(error.kind());
        *response.body_mut() = (format.render)(&error, &request_id).into_text().into();
    }
    response
}

fn format_of(formats: &[ErrorFormat], path: &str) -> Option<ErrorFormat> {
    formats
        .iter()
        .filter(|format| path.starts_with(format.path))
        .max_by_key(|format| format.path.len())
        .copied()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::response::openai::error_body;

    fn check(failure: Failure, expected: Expect) {
        let error = ApiError::from(failure);
        let body = error_body(&error).into_text();
        expected.assert_eq(&format!("{} {:?} {body}", error.kind.status().as_u16(), error.retry_after_s()));
    }

    #[test]
    fn the_longest_path_chooses_the_format() {
        let named = |path: &'static str| {
            let render = |error: &ApiError, _: &RequestId| error_body(error);
            ErrorFormat { path, render, status: ErrorKind::status }
        };
        let formats = [named("/"), named("/v1/messages"), named("/v1")];
        let path_of = |path: &str| format_of(&formats, path).map(|format| format.path);
        assert_eq!(path_of("/v1/messages/count_tokens"), Some("/v1/messages"));
        assert_eq!(path_of("/v1/models"), Some("/v1"));
        assert_eq!(path_of("/health"), Some("/"));
    }

    #[test]
    fn each_failure_has_a_status_and_a_remedy() {
        check(
            Failure::bad_request("top_p", "top_p must be above 0 and at most 1"),
            expect![[
                r#"400 None {"error":{"message":"top_p must be above 0 and at most 1","type":"invalid_request_error","param":"top_p","code":"invalid_value"}}"#
            ]],
        );
        check(
            Failure::UnknownModel { model: "gpt-4".into(), served: vec!["a".into(), "b:c".into()] },
            expect![[
                r#"404 None {"error":{"message":"the model `gpt-4` is not served here; served: `a`, `b:c`","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
            ]],
        );
        check(
            Failure::TooLong { prompt_tokens: 9, completion_tokens: 1, limit: 8 },
            expect![[
                r#"400 None {"error":{"message":"this model's maximum context length is 8 tokens; 9 tokens of prompt and 1 of completion do not fit","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#
            ]],
        );
        check(
            Failure::Busy { retry_after_s: 0 },
            expect![[
                r#"429 Some(1) {"error":{"message":"the queue is full; retry in 1 s","type":"rate_limit_error","param":null,"code":"queue_full"}}"#
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
        let (model, message) = ("m".into(), "it cannot be loaded: no file".into());
        check(
            Failure::ModelUnavailable { model, message, retry_after_s: Some(2) },
            expect![[
                r#"503 Some(2) {"error":{"message":"the model `m` is not available: it cannot be loaded: no file","type":"server_error","param":null,"code":"unavailable"}}"#
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
