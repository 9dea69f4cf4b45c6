//! Where a model's files are, and the names it is served under.

use std::path::{Path, PathBuf};

use omnibus_model::Source;

use crate::error::StartError;
use crate::settings::Settings;

/// A model's files and its served names.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A directory as mlx-lm or Hugging Face writes it.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Served names, the listed one first; empty means the directory's name.
        served_names: Vec<String>,
    },
    /// Files compiled into the binary.
    Embedded {
        /// File names and contents.
        files: &'static [(&'static str, &'static [u8])],
        /// Served names, the listed one first.
        served_names: Vec<String>,
    },
}

impl ModelSource {
    /// The files.
    pub fn files(&self) -> Source {
        match self {
            Self::Directory { path, .. } => Source::Directory(path.clone()),
            Self::Embedded { files, .. } => Source::Embedded(files),
        }
    }

    /// Bytes of its weights in memory, and of those of what drafts for it.
    pub fn weight_bytes(&self, settings: &Settings) -> Result<u64, StartError> {
        let files = self.files();
        let own = files.resident_bytes(settings.expert_memory).map_err(StartError::new)?;
        Ok(own.saturating_add(settings.speculation.weight_bytes(&files)?))
    }

    /// Served names, at least one.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Directory { path, served_names } if served_names.is_empty() => vec![name_of(path)],
            Self::Directory { served_names, .. } | Self::Embedded { served_names, .. } => {
                served_names.clone()
            }
        }
    }
}

/// The directory's name, symbolic links resolved.
fn name_of(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
