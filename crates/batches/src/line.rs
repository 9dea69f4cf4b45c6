//! A line of a file of requests.
//!
//! Source: OpenAI's batch input files; vLLM's `run-batch`.

use serde_json::Value;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

/// Longest `custom_id`, in bytes.
const CUSTOM_ID_MAX: usize = 512;

/// The paths of requests whose answer is one object.
pub const URLS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/v2/embed",
    "/classify",
    "/pooling",
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The client's name of it.
    pub custom_id: String,
    /// Its path, from `/` on.
    pub url: String,
    /// What is sent.
    pub body: Value,
}

/// Why a line is no request.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct LineError {
    /// For programs.
    pub code: &'static str,
    /// The field at fault.
    pub param: Option<&'static str>,
    /// For people.
    pub message: String,
}

impl LineError {
    fn of(param: &'static str, message: impl Into<String>) -> Self {
        Self { code: "invalid_value", param: Some(param), message: message.into() }
    }

    /// A `custom_id` that an earlier line has.
    pub(crate) fn twice(custom_id: &str) -> Self {
        let message = format!("the custom_id `{custom_id}` is there twice");
        Self { code: "duplicate_custom_id", ..Self::of("custom_id", message) }
    }

    /// A line that is too long.
    pub(crate) fn too_long(most: usize) -> Self {
        Self { code: "line_too_long", param: None, message: format!("longer than {most} bytes") }
    }
}

impl Line {
    /// Reads a line, whose path must be one of `urls`. Spaces, a carriage return and a byte order mark may stand around it.
    pub fn read(text: &[u8], urls: &[&str]) -> Result<Self, LineError> {
        let value: Value = serde_json::from_slice(trimmed(text)).map_err(|error| LineError {
            code: "invalid_json_line",
            param: None,
            message: format!("not valid JSON: {error}"),
        })?;
        let Value::Object(mut fields) = value else {
            let message = "`custom_id` is missing: a line must be an object";
            return Err(LineError::of("custom_id", message));
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let custom_id = text("custom_id").filter(|id| !id.is_empty());
        let custom_id = custom_id.ok_or_else(|| LineError::of("custom_id", "`custom_id` is missing"))?;
        if custom_id.len() > CUSTOM_ID_MAX {
            let message = format!("`custom_id` must be at most {CUSTOM_ID_MAX} bytes");
            return Err(LineError::of("custom_id", message));
        }
        if let Some(method) = text("method").filter(|method| method != "POST") {
            return Err(LineError::of("method", format!("`method` must be POST, not {method}")));
        }
        let url = text("url").ok_or_else(|| LineError::of("url", "`url` is missing"))?;
        if !urls.contains(&url.as_str()) {
            let message = match urls {
                [one] => format!("`url` must be {one}, not {url}"),
                several => format!("`url` must be one of {}, not {url}", several.join(", ")),
            };
            return Err(LineError::of("url", message));
        }
        let body = fields.remove("body").filter(Value::is_object);
        let body = body.ok_or_else(|| LineError::of("body", "`body` must be an object"))?;
        check_body(&body)?;
        Ok(Self { custom_id, url, body })
    }
}

/// Fails for a body whose answer is not one object.
pub fn check_body(body: &Value) -> Result<(), LineError> {
    let is_on = |name: &str| body.get(name).and_then(Value::as_bool) == Some(true);
    if is_on("stream") {
        return Err(LineError::of("body.stream", "`body.stream` must not be true: an answer is one line"));
    }
    if is_on("background") {
        let message = "`body.background` must not be true: a batch is in the background already";
        return Err(LineError::of("body.background", message));
    }
    Ok(())
}

/// Without what may stand around a line: spaces, a carriage return, a byte order mark.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii()
}

/// By which a line is found again. Two lines of one file with the same number are refused as equal.
pub fn custom_id_hash(custom_id: &str) -> u128 {
    xxh3_128(custom_id.as_bytes())
}
