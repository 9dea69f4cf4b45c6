//! Why a model cannot be fetched or uploaded: one line that says what to do.

use std::path::PathBuf;

use thiserror::Error;

use crate::id::ModelId;

/// Why a model cannot be fetched or uploaded.
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
    #[error("{url} answered what cannot be read: {why}")]
    Listing { url: String, why: String },
    #[error("{id} holds no config.json with *.safetensors; models in other formats cannot be loaded")]
    NotAModel { id: ModelId },
    #[error(
        "{id} holds {files} GGUF files, of which a model is one: download that one and give its path, or take a repository of safetensors, such as mlx-community/{}",
        mlx_name(&id.repository)
    )]
    Gguf { id: ModelId, files: usize },
    #[error("{} has no config.json: it is no model's folder", folder.display())]
    NotAFolder { folder: PathBuf },
    #[error("{}: the name of a file must be UTF-8", path.display())]
    FileName { path: PathBuf },
    #[error("{file} became shorter while it was sent")]
    Changed { file: String },
    #[error("the hub does not take {file}: {why}")]
    Refused { file: String, why: String },
    #[error("uploads need a token that may write: set HF_TOKEN, or run `huggingface-cli login`")]
    NoToken,
    #[error("HF_HUB_OFFLINE forbids to upload")]
    OfflineUpload,
    #[error("the token may not write to {what}: take one that may, from the hub's settings")]
    ReadOnly { what: String },
    #[error("{url} answered {status}: {why}")]
    RefusedUpload { url: String, status: u16, why: String },
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

/// The likely name of a model in MLX's format: that of its repository without the other format's.
fn mlx_name(repository: &str) -> String {
    let name = repository.split('/').next_back().unwrap_or(repository);
    let lower = name.to_ascii_lowercase();
    let end = ["-gguf", "_gguf", ".gguf"].iter().find_map(|ending| lower.strip_suffix(ending)).map(str::len);
    format!("{}-4bit", name.get(..end.unwrap_or(name.len())).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_of_gguf_files_names_one_that_can_be_loaded() {
        let id = ModelId::parse("unsloth/Qwen3-8B-GGUF").unwrap();
        let message = Error::Gguf { id, files: 9 }.to_string();
        assert!(
            message.contains("9 GGUF files") && message.ends_with("mlx-community/Qwen3-8B-4bit"),
            "{message}"
        );
    }
}
