//! Errors, one variant per remedy.

use std::path::PathBuf;

/// An error of this crate. Messages are one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the model is missing or invalid. Remedy: download or convert the model again.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the remedy.
        message: String,
    },
    /// The tokenizer refused a text or tokens. Remedy: change the request.
    #[error("the tokenizer refused: {message}")]
    Tokenize {
        /// The reason.
        message: String,
    },
    /// The chat template does not parse. Remedy: another template.
    #[error("chat template '{name}', line {line}: {message}")]
    TemplateSyntax {
        /// The template's name.
        name: String,
        /// The line of its source.
        line: u32,
        /// What is wrong.
        message: String,
    },
    /// The chat template called `raise_exception`. Remedy: change the conversation.
    #[error("{message}")]
    TemplateRaised {
        /// The template's message.
        message: String,
    },
    /// The chat template failed on this conversation. Remedy: change one of them.
    #[error("the chat template failed in line {line}: {message}")]
    TemplateFailed {
        /// The line of its source.
        line: u32,
        /// The message, as in Python.
        message: String,
    },
    /// The rendering exceeded a limit.
    #[error("the chat template was stopped in line {line}: it exceeds the limit of {what}")]
    TemplateLimit {
        /// The line of its source.
        line: u32,
        /// The limit.
        what: &'static str,
    },
}
