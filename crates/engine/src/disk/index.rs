//! Which files there are, how large, and which were used longest ago.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::CachedModel;
use super::file::{EXTENSION, UNFINISHED};

/// When a file was last used; the number tells apart what a clock does not.
type Stamp = (SystemTime, u64);

/// Files by path below the root, of all models that share it.
#[derive(Debug)]
pub(super) struct Index {
    files: BTreeMap<PathBuf, (u64, Stamp)>,
    by_age: BTreeMap<Stamp, PathBuf>,
    bytes: u64,
    limit_bytes: u64,
    next: u64,
}

impl Index {
    /// Looks into every model's folder, and removes what a killed writer left half written.
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
                    Some(UNFINISHED) if is_abandoned(&path) => {
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

    /// Files and bytes.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.files.len() as u64, self.bytes)
    }

    /// What there is of each model, by its folder's name.
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

    /// Whether a file of so many bytes can be kept at all.
    pub(super) fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit_bytes
    }

    /// Notes a file, or that it was used.
    pub(super) fn add(&mut self, path: PathBuf, bytes: u64, used: SystemTime) {
        self.forget(&path);
        let stamp = (used, self.next);
        self.next += 1;
        self.bytes += bytes;
        self.by_age.insert(stamp, path.clone());
        self.files.insert(path, (bytes, stamp));
    }

    pub(super) fn forget(&mut self, path: &Path) {
        if let Some((bytes, stamp)) = self.files.remove(path) {
            self.by_age.remove(&stamp);
            self.bytes -= bytes;
        }
    }

    /// Forgets what was used longest ago until `bytes` more fit. The caller removes the files.
    pub(super) fn make_room(&mut self, bytes: u64) -> Vec<PathBuf> {
        let mut evicted = Vec::new();
        while self.bytes.saturating_add(bytes) > self.limit_bytes {
            let Some((_, path)) = self.by_age.first_key_value() else { break };
            let path = path.clone();
            self.forget(&path);
            evicted.push(path);
        }
        evicted
    }
}

/// True unless the process that writes the file may still live: `<key>-<group>.<process id>.tmp`.
fn is_abandoned(path: &Path) -> bool {
    let stem = path.file_stem().map(Path::new).and_then(|stem| stem.extension());
    let writer = stem.and_then(|id| id.to_str()).and_then(|id| id.parse::<u32>().ok());
    writer.is_none_or(|id| id == std::process::id() || !Path::new("/proc").join(id.to_string()).exists())
}
