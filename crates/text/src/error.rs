//! What can go wrong with text, one variant a remedy.

use std::path::PathBuf;

/// An error of this crate. Messages are one line and say what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the model is missing or broken: the model has to be downloaded or converted again.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        message: String,
    },
    /// The tokenizer cannot take a text or tokens: the request has to change.
    #[error("the tokenizer refused: {message}")]
    Tokenize {
        /// Why.
        message: String,
    },
    /// The chat template is not one this server can read: another has to be given.
    #[error("chat template '{name}', line {line}: {message}")]
    TemplateSyntax {
        /// Which of the model's templates.
        name: String,
        /// The line of its source.
        line: u32,
        /// What is wrong.
        message: String,
    },
    /// The chat template refused the conversation in its own words: the conversation has to change.
    #[error("{message}")]
    TemplateRaised {
        /// What the template said.
        message: String,
    },
    /// The chat template cannot make a prompt of this conversation: one of them has to change.
    #[error("the chat template failed in line {line}: {message}")]
    TemplateFailed {
        /// The line of its source.
        line: u32,
        /// What Python would say.
        message: String,
    },
    /// The chat template wanted more than a rendering may use.
    #[error("the chat template was stopped in line {line}: it exceeds the limit of {what}")]
    TemplateLimit {
        /// The line of its source.
        line: u32,
        /// What it used too much of.
        what: &'static str,
    },
}
