//! The files, their sizes, and when they were last used.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::CachedModel;
use super::file::{EXTENSION, TEMPORARY};

/// When a file was last used; the number orders files of equal time.
type LastUsed = (SystemTime, u64);

/// Files by path below the root, of all models that share it.
#[derive(Debug)]
pub(super) struct Index {
    files: BTreeMap<PathBuf, (u64, LastUsed)>,
    by_age: BTreeMap<LastUsed, PathBuf>,
    bytes: u64,
    limit_bytes: u64,
    next: u64,
}

impl Index {
    /// Reads every model's folder, and removes temporary files of killed writers.
    pub(super) fn scan(root: &Path, limit_bytes: u64) -> io::Result<Self> {
        let mut index =
            Self { files: BTreeMap::new(), by_age: BTreeMap::new(), bytes: 0, limit_bytes, next: 0 };
        for folder in std::fs::read_dir(root)? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            for file in std::fs::read_dir(folder.path())?.flatten() {
                let path = Path::new(&folder.file_name()).join(file.file_name());
                let Ok(about) = file.metadata() else { continue };
                match path.extension().and_then(|extension| extension.to_str()) {
                    Some(EXTENSION) if about.is_file() => {
                        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                        index.add(path, about.len(), used);
                    }
                    Some(TEMPORARY) if is_abandoned(&path) => {
                        let _gone = std::fs::remove_file(file.path());
                    }
                    _ => {}
                }
            }
        }
        Ok(index)
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// Bytes of a file.
    pub(super) fn bytes_of(&self, path: &Path) -> Option<u64> {
        self.files.get(path).map(|(bytes, _)| *bytes)
    }

    /// The number of files, and their bytes.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.files.len() as u64, self.bytes)
    }

    /// Each model's part, by its folder's name.
    pub(super) fn by_folder(&self) -> Vec<CachedModel> {
        let mut folders: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (path, (bytes, _)) in &self.files {
            let folder = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
            let entry = folders.entry(folder).or_default();
            *entry = (entry.0 + 1, entry.1 + bytes);
        }
        let models = folders.into_iter();
        models.map(|(fingerprint, (files, bytes))| CachedModel { fingerprint, files, bytes }).collect()
    }

    /// Whether a file of this size fits the limit.
    pub(super) fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit_bytes
    }

    /// Adds a file, or updates its time of use.
    pub(super) fn add(&mut self, path: PathBuf, bytes: u64, used: SystemTime) {
        self.remove(&path);
        let last_used = (used, self.next);
        self.next += 1;
        self.bytes += bytes;
        self.by_age.insert(last_used, path.clone());
        self.files.insert(path, (bytes, last_used));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        if let Some((bytes, last_used)) = self.files.remove(path) {
            self.by_age.remove(&last_used);
            self.bytes -= bytes;
        }
    }

    /// Removes the least recently used files from the index until `bytes` more fit. The caller deletes them.
    pub(super) fn make_room(&mut self, bytes: u64) -> Vec<PathBuf> {
        let mut evicted = Vec::new();
        while self.bytes.saturating_add(bytes) > self.limit_bytes {
            let Some((_, path)) = self.by_age.first_key_value() else { break };
            let path = path.clone();
            self.remove(&path);
            evicted.push(path);
        }
        evicted
    }
}

/// True unless the process that writes the file may still run: `<key>-<group>.<process id>.tmp`.
fn is_abandoned(path: &Path) -> bool {
    let stem = path.file_stem().map(Path::new).and_then(|stem| stem.extension());
    let writer = stem.and_then(|id| id.to_str()).and_then(|id| id.parse::<u32>().ok());
    writer.is_none_or(|id| id == std::process::id() || !Path::new("/proc").join(id.to_string()).exists())
}
