//! Files of tests on disk, and the folders that they become.

use std::path::{Path, PathBuf};

use omnibus_gguf::{Gguf, Written};
use serde_json::Value;

use super::writer::File;

impl File {
    /// Puts the file where it can be opened.
    pub fn write(&self) -> Opened {
        Opened::of(&self.bytes())
    }
}

/// A file of a test, removed when dropped.
pub struct Opened {
    folder: tempfile::TempDir,
}

impl Opened {
    pub fn of(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tiny.gguf"), bytes).unwrap();
        Self { folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("tiny.gguf")
    }

    pub fn gguf(&self) -> Gguf {
        Gguf::open(&self.path()).unwrap()
    }

    /// Why it is refused, when it is opened or when it is written.
    pub fn error(&self) -> String {
        let folder = self.folder.path();
        Gguf::open(&self.path()).and_then(|gguf| gguf.write(folder, &mut |_| {})).unwrap_err().to_string()
    }

    pub fn convert(&self) -> (Folder<'_>, Written) {
        let written = self.gguf().write(self.folder.path(), &mut |_| {}).unwrap();
        (Folder(self.folder.path()), written)
    }
}

pub struct Folder<'a>(&'a Path);

/// A tensor of safetensors: type, shape, bytes.
pub type Tensor = (String, Vec<usize>, Vec<u8>);

impl Folder<'_> {
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.0.join(name)).unwrap()).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn tensor(&self, name: &str) -> Tensor {
        let bytes = std::fs::read(self.0.join("model.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensor =
            tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}, {:?}", tensors.names()));
        (format!("{:?}", tensor.dtype()), tensor.shape().to_vec(), tensor.data().to_vec())
    }
}
