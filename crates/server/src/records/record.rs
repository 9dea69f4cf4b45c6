//! One record: a request, and what its answer said.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Exchange;
use super::passing::Passed;
use crate::answer::Answer;

/// The version of this format.
const VERSION: u32 = 1;
/// Most bytes that are kept of an error.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// A request, and what its answer said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Of the format.
    pub version: u32,
    /// When it arrived, in milliseconds of Unix time.
    pub time_ms: u64,
    /// `POST`
    pub method: String,
    /// Without a query.
    pub path: String,
    /// As in `x-request-id`.
    pub request_id: String,
    /// Some of its headers, and no secrets.
    pub headers: BTreeMap<String, String>,
    /// The model that it names.
    pub model: Option<String>,
    /// The seed that it has.
    pub seed: Option<Value>,
    /// Its body.
    pub body: Option<Value>,
    /// Its body, if that is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// What was answered.
    pub answer: RecordedAnswer,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The response's id.
    pub id: Option<String>,
    /// Why it ended.
    pub finish: Option<String>,
    /// Tokens of the prompt, where the answer has them.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the completion, where the answer has them.
    pub completion_tokens: Option<u64>,
    /// Seconds to the first bytes of the body.
    pub first_s: Option<f64>,
    /// Seconds to the end.
    pub total_s: f64,
    /// Whether the client received all of it.
    pub is_whole: bool,
    /// A hash of its texts, reasoning and calls.
    pub sha256: Option<String>,
    /// The body of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

impl Record {
    /// Of a request that was answered.
    pub(super) fn of(exchange: Exchange, answered: &Passed, total_s: f64) -> Self {
        let Exchange { arrived, since, path, request_id, format, headers, sent, status } = exchange;
        let body = sent.take().bytes();
        let parsed: Option<Value> = serde_json::from_slice(&body).ok();
        let field = |name: &str| parsed.as_ref().and_then(|body| body.get(name)).cloned();
        let model = field("model").and_then(|model| model.as_str().map(str::to_owned));
        let bytes = answered.bytes();
        let said = Answer::read(format, &bytes);
        let error = (!status.is_success() && bytes.len() <= ERROR_BYTES_MAX)
            .then(|| serde_json::from_slice(&bytes).ok());
        let digest = (status.is_success() && answered.is_whole).then(|| said.digest());
        let of_options = |body: &Value| body.get("options")?.get("seed").cloned();
        Self {
            version: VERSION,
            time_ms: arrived.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            method: "POST".to_owned(),
            path,
            request_id,
            headers,
            model,
            seed: field("seed").or_else(|| parsed.as_ref().and_then(of_options)),
            body_text: parsed.is_none().then(|| String::from_utf8_lossy(&body).into_owned()),
            body: parsed,
            answer: RecordedAnswer {
                status: status.as_u16(),
                id: said.id,
                finish: said.finish,
                prompt_tokens: said.prompt_tokens,
                completion_tokens: said.completion_tokens,
                first_s: answered.first.map(|first| first.duration_since(since).as_secs_f64()),
                total_s,
                is_whole: answered.is_whole,
                sha256: digest,
                error: error.flatten(),
            },
        }
    }
}
