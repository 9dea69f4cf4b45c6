//! Result lines: as OpenAI and vLLM write them, and as Anthropic does.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::usage::Usage;

/// Whose lines they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// OpenAI's batch files.
    OpenAi,
    /// Anthropic's message batches.
    Anthropic,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// There was an answer, perhaps with an error.
    Response {
        #[allow(missing_docs)]
        status: u16,
        /// The server's id of it.
        request_id: String,
        #[allow(missing_docs)]
        body: Value,
    },
    /// There was none.
    None(Unanswered),
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// It failed.
    Failed(String),
    /// Its batch was cancelled.
    Cancelled,
    /// Its batch expired.
    Expired,
}

/// What a result says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Outcome {
    Succeeded,
    Failed,
    Cancelled,
    Expired,
}

impl Outcome {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

/// A result that was read.
pub(crate) struct ReadResult {
    pub(crate) custom_id: String,
    pub(crate) outcome: Outcome,
    pub(crate) usage: Usage,
}

impl Answer {
    /// What it says.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Response { status: 200..=299, .. } => Outcome::Succeeded,
            Self::Response { .. } | Self::None(Unanswered::Failed(_)) => Outcome::Failed,
            Self::None(Unanswered::Cancelled) => Outcome::Cancelled,
            Self::None(Unanswered::Expired) => Outcome::Expired,
        }
    }

    /// Its tokens.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Response { body, .. } => Usage::of_body(body),
            Self::None(_) => Usage::default(),
        }
    }
}

impl Unanswered {
    /// The code in OpenAI's files, and a text.
    fn described(&self) -> (&'static str, &str) {
        match self {
            Self::Failed(message) => ("server_error", message),
            Self::Cancelled => (CANCELLED, "the batch was cancelled before this request ran"),
            Self::Expired => (EXPIRED, "the batch expired before this request ran"),
        }
    }
}

const CANCELLED: &str = "batch_cancelled";
const EXPIRED: &str = "batch_expired";

impl Format {
    /// The line of a result, with its end. `number`: of the line in its file.
    pub(crate) fn line(self, custom_id: &str, number: usize, answer: &Answer) -> String {
        let mut line = match self {
            Self::OpenAi => openai(custom_id, number, answer),
            Self::Anthropic => json!({"custom_id": custom_id, "result": anthropic(answer)}),
        }
        .to_string();
        line.push('\n');
        line
    }

    /// What each line begins with.
    pub(crate) fn begin(self) -> &'static [u8] {
        match self {
            Self::OpenAi => b"{\"id\":\"batch_req_",
            Self::Anthropic => b"{\"custom_id\":\"",
        }
    }

    /// Reads a line; `None` if it is no result.
    pub(crate) fn read(self, line: &[u8]) -> Option<ReadResult> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let custom_id = value.get("custom_id")?.as_str()?.to_owned();
        let (outcome, body) = match self {
            Self::OpenAi => {
                let response = value.get("response")?;
                let status = response.get("status_code").and_then(Value::as_u64);
                let code = value.pointer("/error/code").and_then(Value::as_str);
                let outcome = match (status, code) {
                    (Some(200..=299), _) => Outcome::Succeeded,
                    (_, Some(CANCELLED)) => Outcome::Cancelled,
                    (_, Some(EXPIRED)) => Outcome::Expired,
                    _ => Outcome::Failed,
                };
                (outcome, response.get("body"))
            }
            Self::Anthropic => {
                let outcome = match value.pointer("/result/type")?.as_str()? {
                    "succeeded" => Outcome::Succeeded,
                    "canceled" => Outcome::Cancelled,
                    "expired" => Outcome::Expired,
                    _ => Outcome::Failed,
                };
                (outcome, value.pointer("/result/message"))
            }
        };
        Some(ReadResult { custom_id, outcome, usage: body.map(Usage::of_body).unwrap_or_default() })
    }
}

fn openai(custom_id: &str, number: usize, answer: &Answer) -> Value {
    let (response, error) = match answer {
        Answer::Response { status, request_id, body } => {
            (json!({"status_code": status, "request_id": request_id, "body": body}), Value::Null)
        }
        Answer::None(why) => {
            let (code, message) = why.described();
            (Value::Null, json!({"code": code, "message": message}))
        }
    };
    let id = format!("batch_req_{number:08x}");
    json!({"id": id, "custom_id": custom_id, "response": response, "error": error})
}

fn anthropic(answer: &Answer) -> Value {
    match answer {
        Answer::Response { status: 200..=299, body, .. } => json!({"type": "succeeded", "message": body}),
        Answer::Response { body, .. } => json!({"type": "errored", "error": body}),
        Answer::None(Unanswered::Cancelled) => json!({"type": "canceled"}),
        Answer::None(Unanswered::Expired) => json!({"type": "expired"}),
        Answer::None(Unanswered::Failed(message)) => {
            let error = json!({"type": "api_error", "message": message});
            json!({"type": "errored", "error": {"type": "error", "error": error}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let response = |status: u16| Answer::Response {
            status,
            request_id: "r".to_owned(),
            body: json!({"usage": {"prompt_tokens": 3}}),
        };
        let answers = [
            response(200),
            response(400),
            Answer::None(Unanswered::Failed("x".to_owned())),
            Answer::None(Unanswered::Cancelled),
            Answer::None(Unanswered::Expired),
        ];
        for format in [Format::OpenAi, Format::Anthropic] {
            for answer in &answers {
                let line = format.line("a \"b\"", 7, answer);
                assert!(line.as_bytes().starts_with(format.begin()), "{line}");
                let read = format.read(line.as_bytes()).unwrap();
                assert_eq!((read.custom_id.as_str(), read.outcome), ("a \"b\"", answer.outcome()));
                let succeeded = answer.outcome() == Outcome::Succeeded;
                assert_eq!(
                    read.usage.input_tokens,
                    if succeeded || (format == Format::OpenAi && matches!(answer, Answer::Response { .. })) {
                        3
                    } else {
                        0
                    }
                );
            }
        }
        assert!(Format::OpenAi.read(b"{\"custom_id\":\"a\",\"body\":{}}").is_none());
        assert!(Format::Anthropic.read(b"{\"custom_id\":\"a\",\"params\":{}}").is_none());
    }
}
