//! What can go wrong with a template.

/// An error of this crate. Messages are one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source is not a template this crate can read.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line of the source.
        line: u32,
        /// What is wrong.
        message: String,
    },
    /// The template called `raise_exception`.
    #[error("{message}")]
    Raised {
        /// The argument of the call.
        message: String,
    },
    /// An operation failed, as it fails in Python.
    #[error("line {line}: {message}")]
    Failed {
        /// The line of the source.
        line: u32,
        /// The message of Python's exception, where Python has one.
        message: String,
    },
    /// The rendering exceeded one of its [`crate::Limits`].
    #[error("line {line}: it exceeds the limit of {what}")]
    Limit {
        /// The line of the source.
        line: u32,
        /// The limit.
        what: &'static str,
    },
}

/// Why a rendering ended early. [`Error`] without the line, which only the evaluator knows.
#[derive(Debug)]
pub enum RenderError {
    /// The template called `raise_exception`.
    Raised(String),
    /// An operation failed, as it fails in Python.
    Failed(String),
    /// A limit was exceeded; the text names it.
    Limit(&'static str),
}

impl RenderError {
    pub(crate) fn failed<T>(message: impl Into<String>) -> Result<T, RenderError> {
        Err(RenderError::Failed(message.into()))
    }

    /// This error at a line of the source.
    pub(crate) fn at(self, line: u32) -> Error {
        match self {
            RenderError::Raised(message) => Error::Raised { message },
            RenderError::Failed(message) => Error::Failed { line, message },
            RenderError::Limit(what) => Error::Limit { line, what },
        }
    }
}
