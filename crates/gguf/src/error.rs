//! Why a file cannot be read.

use std::path::PathBuf;

/// One line each: the file, what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    /// The file itself: cut, changed, or not of this format.
    #[error("{}: not a sound GGUF file: {problem}; download it again", file.display())]
    Broken { file: PathBuf, problem: String },
    /// Sound, but not for this program.
    #[error("{}: {problem}; take the safetensors that the file was made from{origin}", file.display())]
    Unsupported { file: PathBuf, problem: String, origin: String },
    /// The operating system.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

/// What is wrong with a file, before its name is known.
#[derive(Debug, PartialEq, Eq)]
pub enum Problem {
    /// [`Error::Broken`].
    Broken(String),
    /// [`Error::Unsupported`].
    Unsupported(String),
}

impl Problem {
    pub(crate) fn broken(problem: impl Into<String>) -> Self {
        Self::Broken(problem.into())
    }

    pub(crate) fn unsupported(problem: impl Into<String>) -> Self {
        Self::Unsupported(problem.into())
    }
}
