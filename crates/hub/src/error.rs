//! Why a model cannot be fetched: one line that says what to do.

use std::path::PathBuf;

use thiserror::Error;

use crate::id::ModelId;

/// Why a model cannot be fetched.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("{id} is not in the cache, and HF_HUB_OFFLINE forbids to download it")]
    Offline { id: ModelId },
    #[error("cannot reach {url}: {why}")]
    Unreachable { url: String, why: String },
    #[error(
        "there is no {what} on the hub, or it is private: check the name, and set HF_TOKEN for private models"
    )]
    Absent { what: String },
    #[error("access to {what} is restricted: accept its terms on the hub and set HF_TOKEN")]
    Forbidden { what: String },
    #[error("{url} answered {status}")]
    Status { url: String, status: u16 },
    #[error("{url} answered what is not a list of files: {why}")]
    Listing { url: String, why: String },
    #[error("{id} holds no config.json with *.safetensors; models in other formats cannot be loaded")]
    NotAModel { id: ModelId },
    #[error("{file}: {problem}; run the command again to resume")]
    Broken { file: String, problem: String },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { path: path.into(), error }
    }
}
