//! Why an engine cannot start, and why a request cannot be served.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::info::ModelInfo;

/// Why an engine cannot start: one line that names the file or the setting and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    line: String,
    cause: StartFailure,
}

/// What is at fault when an engine cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailure {
    /// A file, a setting or the machine: another attempt fails, too.
    Permanent,
    /// The engine's process ended before it was ready: another attempt may succeed.
    Crashed,
}

impl StartError {
    /// An error in one line.
    pub fn new(error: impl fmt::Display) -> Self {
        Self { line: error.to_string().replace('\n', " "), cause: StartFailure::Permanent }
    }

    /// The end of the engine's process.
    pub(crate) fn crashed(error: impl fmt::Display) -> Self {
        Self { cause: StartFailure::Crashed, ..Self::new(error) }
    }

    /// What is at fault.
    pub fn cause(&self) -> StartFailure {
        self.cause
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for StartError {}

/// The other end of a channel or socket is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disconnected;

/// Why a request could not be served. The kinds are remedies: each says what the client can do.
#[derive(Debug, Clone, PartialEq, Error, Serialize, Deserialize)]
pub enum Failure {
    /// Change the request.
    #[error("{message}")]
    BadRequest {
        /// The field at fault, in the API's spelling.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Request another model.
    #[error("the model `{model}` is not served here; served: {}", quoted(served))]
    UnknownModel {
        /// The requested name.
        model: String,
        /// The names that are served.
        served: Vec<String>,
    },
    /// Shorten the prompt or the answer.
    #[error(
        "this model's maximum context length is {limit} tokens; {prompt_tokens} tokens of prompt and \
         {completion_tokens} of completion do not fit"
    )]
    TooLong {
        /// Tokens of the prompt; of a text that is many times too long, those of its first part.
        prompt_tokens: usize,
        /// Tokens of the answer at least: as many as the request wants, or one.
        completion_tokens: usize,
        /// Most tokens of both.
        limit: usize,
    },
    /// Try again later.
    #[error("the queue is full; retry in {} s", (*retry_after_s).max(RETRY_MIN_S))]
    Busy {
        /// An estimate from the queue as it is. [`Failure::retry_after_s`] is never zero.
        retry_after_s: u64,
    },
    /// The request's own time limit passed.
    #[error("the request timed out after {after_s} s")]
    Timeout {
        /// The limit.
        after_s: f64,
    },
    /// The server is about to stop, or the engine is restarting.
    #[error("the server is not taking requests: {message}")]
    Unavailable {
        /// Why.
        message: String,
        /// When to try again, where that is known.
        retry_after_s: Option<u64>,
    },
    /// Try again later, or request another model.
    #[error("the model `{model}` is not available: {message}")]
    ModelUnavailable {
        /// Its name.
        model: String,
        /// Why.
        message: String,
        /// When to try again, where that is known.
        retry_after_s: Option<u64>,
    },
    /// A bug or a broken machine.
    #[error("the engine failed: {message}")]
    Engine {
        /// For the log and the bug report.
        message: String,
    },
}

/// Shortest time after which a client should try again.
const RETRY_MIN_S: u64 = 1;

/// Names in backticks, with commas between them.
fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Failure {
    /// In how many seconds to try again, where that is known.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Busy { retry_after_s } => Some((*retry_after_s).max(RETRY_MIN_S)),
            Self::Unavailable { retry_after_s, .. } | Self::ModelUnavailable { retry_after_s, .. } => {
                *retry_after_s
            }
            Self::BadRequest { .. }
            | Self::UnknownModel { .. }
            | Self::TooLong { .. }
            | Self::Timeout { .. }
            | Self::Engine { .. } => None,
        }
    }

    /// A request for a model that is none of these.
    pub fn unknown_model<'a>(
        model: impl Into<String>,
        served: impl IntoIterator<Item = &'a ModelInfo>,
    ) -> Self {
        let names = served.into_iter().flat_map(ModelInfo::names).map(str::to_owned);
        Self::UnknownModel { model: model.into(), served: names.collect() }
    }

    /// For an unknown time.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after_s: None }
    }

    /// A request with a field that cannot be honoured.
    pub fn bad_request(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::BadRequest { field: field.into(), message: message.into() }
    }
}
