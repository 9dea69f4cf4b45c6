//! The folder of files and batches.
//!
//! Invariant: a record is complete or absent. Only ids that were made here become names of files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The folder.
#[derive(Debug)]
pub struct Folder {
    files: PathBuf,
    batches: PathBuf,
    /// Locked for as long as the folder is used.
    _lock: File,
}

/// A record of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of a file.
    File,
    /// Of a batch.
    Batch,
}

impl Folder {
    /// Opens or makes the folder below a state directory. Fails where another process uses it.
    pub fn open(state: &Path) -> io::Result<Self> {
        let root = state.join("batches");
        let (files, batches) = (root.join("files"), root.join("states"));
        fs::create_dir_all(&files)?;
        fs::create_dir_all(&batches)?;
        let lock = File::create(root.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another server uses the batches of this folder")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(Self { files, batches, _lock: lock })
    }

    fn of(&self, kind: Kind) -> &Path {
        match kind {
            Kind::File => &self.files,
            Kind::Batch => &self.batches,
        }
    }

    fn record(&self, kind: Kind, id: &str) -> PathBuf {
        self.of(kind).join(format!("{id}.json"))
    }

    /// The bytes of a file.
    pub fn data(&self, id: &str) -> PathBuf {
        self.files.join(format!("{id}.data"))
    }

    /// The bytes of a file that is still received.
    pub fn part(&self, id: &str) -> PathBuf {
        self.files.join(format!("{id}.part"))
    }

    /// Writes a record, and waits for the disk.
    pub fn write(&self, kind: Kind, id: &str, record: &impl Serialize) -> io::Result<()> {
        let path = self.record(kind, id);
        let part = path.with_extension("part");
        let written = File::create(&part).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(record)?)?;
            file.sync_all()
        });
        let renamed = written.and_then(|()| fs::rename(&part, &path));
        if let Err(error) = renamed {
            // On a full disk it has a part of the record.
            _ = fs::remove_file(&part);
            return Err(error);
        }
        self.sync(kind)
    }

    /// Waits until new names are on the disk.
    pub fn sync(&self, kind: Kind) -> io::Result<()> {
        File::open(self.of(kind))?.sync_all()
    }

    /// Removes a record.
    pub fn remove_record(&self, kind: Kind, id: &str) -> io::Result<()> {
        remove(&self.record(kind, id))
    }

    /// Removes the bytes of a file.
    pub fn remove_data(&self, id: &str) -> io::Result<()> {
        remove(&self.data(id))
    }

    /// All records of a kind. One that cannot be read is left out and logged.
    pub fn records<T: DeserializeOwned>(&self, kind: Kind) -> io::Result<Vec<T>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(self.of(kind))? {
            let path = entry?.path();
            if path.extension() != Some(OsStr::new("json")) {
                continue;
            }
            match serde_json::from_slice(&fs::read(&path)?) {
                Ok(record) => records.push(record),
                Err(error) => tracing::warn!(%error, path = %path.display(), "not a record of a batch"),
            }
        }
        Ok(records)
    }

    /// Removes what no record names, and what was not received to its end. Returns the bytes of what stays.
    pub fn clean(&self, is_known: impl Fn(&str) -> bool) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.files)?.chain(fs::read_dir(&self.batches)?) {
            let entry = entry?;
            let path = entry.path();
            let id = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            match path.extension().and_then(OsStr::to_str) {
                Some("part") => remove(&path)?,
                Some("data") if !is_known(id) => remove(&path)?,
                Some("data") => bytes += entry.metadata()?.len(),
                _ => {}
            }
        }
        Ok(bytes)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
