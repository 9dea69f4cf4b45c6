//! The cache, in huggingface_hub's layout, so that both find each other's downloads.
//!
//! ```text
//! models--ORG--NAME/refs/REVISION              the commit of a branch or a tag
//! models--ORG--NAME/snapshots/COMMIT/FILE      a link to
//! models--ORG--NAME/blobs/CHECKSUM             the bytes, `.incomplete` while they arrive
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::files::{CONFIGS, RemoteFile, is_gguf};
use crate::id::ModelId;

/// A folder with models.
#[derive(Debug, Clone)]
pub struct Cache(PathBuf);

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// `org/name`
    pub repository: String,
    /// Bytes of all its revisions, unfinished downloads among them.
    pub bytes: u64,
    /// Branches and tags that were fetched, each with its commit.
    pub revisions: BTreeMap<String, String>,
}

impl Cache {
    /// The cache in this folder, which may be absent.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The files of an earlier download.
    pub fn snapshot(&self, id: &ModelId) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.reference(id)).map(|commit| commit.trim().to_owned());
        let folder = self.snapshot_folder(id, commit.as_deref().unwrap_or(&id.revision));
        let has = |file: &str| folder.join(file).is_file();
        let is_model = CONFIGS.iter().any(|file| has(file)) || has_gguf(&folder);
        is_model.then_some(folder)
    }

    /// Every model.
    pub fn list(&self) -> Result<Vec<CachedModel>, Error> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::Io { path: self.0.clone(), error }),
        };
        let mut models = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::io(&self.0))?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_prefix("models--"));
            if let Some((owner, name)) = name.and_then(|name| name.split_once("--")) {
                let repository = format!("{owner}/{name}");
                let revisions = revisions(&path.join("refs"), "");
                models.push(CachedModel { repository, bytes: bytes_below(&path.join("blobs")), revisions });
            }
        }
        models.sort_by(|a, b| a.repository.cmp(&b.repository));
        Ok(models)
    }

    /// Removes a model with all its revisions. False when it is not there.
    pub fn remove(&self, id: &ModelId) -> Result<bool, Error> {
        let _lock = self.lock(id)?;
        let folder = self.0.join(id.folder());
        match fs::remove_dir_all(&folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::Io { path: folder, error }),
        }
    }

    /// Keeps other processes from writing the same model, until it is dropped.
    pub(crate) fn lock(&self, id: &ModelId) -> Result<File, Error> {
        let folder = self.0.join(".locks").join(id.folder());
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let path = folder.join("omnibus.lock");
        let file = File::create(&path).map_err(Error::io(&path))?;
        file.lock().map_err(Error::io(&path))?;
        Ok(file)
    }

    /// Where the bytes of a file are. Files without a checksum are named by commit-independent names of their own.
    pub(crate) fn blob(&self, id: &ModelId, file: &RemoteFile) -> PathBuf {
        let name = match file.checksum.text() {
            Some(text) => text.to_owned(),
            None => format!("unchecked-{}", file.name.replace('/', "--")),
        };
        self.0.join(id.folder()).join("blobs").join(name)
    }

    pub(crate) fn snapshot_folder(&self, id: &ModelId, commit: &str) -> PathBuf {
        self.0.join(id.folder()).join("snapshots").join(commit)
    }

    /// Makes a file visible in a snapshot.
    pub(crate) fn link(&self, id: &ModelId, commit: &str, file: &RemoteFile) -> Result<(), Error> {
        let path = self.snapshot_folder(id, commit).join(&file.name);
        let blob = self.blob(id, file);
        let name = blob.file_name().unwrap_or_default();
        let depth = file.name.split('/').count() + 1;
        let target: PathBuf =
            std::iter::repeat_n(Path::new(".."), depth).collect::<PathBuf>().join("blobs").join(name);
        if fs::read_link(&path).is_ok_and(|found| found == target) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::Io { path, error }),
            _ => std::os::unix::fs::symlink(&target, &path).map_err(Error::io(path)),
        }
    }

    /// Remembers the commit of a branch or a tag.
    pub(crate) fn set_ref(&self, id: &ModelId, commit: &str) -> Result<(), Error> {
        if id.revision == commit {
            return Ok(());
        }
        let path = self.reference(id);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        fs::write(&path, commit).map_err(Error::io(path))
    }

    fn reference(&self, id: &ModelId) -> PathBuf {
        self.0.join(id.folder()).join("refs").join(&id.revision)
    }
}

/// Files below a folder by their names, with their content.
fn revisions(folder: &Path, prefix: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match fs::read_to_string(entry.path()) {
            Ok(commit) => _ = found.insert(name, commit.trim().to_owned()),
            Err(_) => found.extend(revisions(&entry.path(), &format!("{name}/"))),
        }
    }
    found
}

fn has_gguf(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_str().is_some_and(is_gguf))
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
