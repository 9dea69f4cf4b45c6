//! A file that is being received.
//!
//! Invariant: its bytes count before they are written, and are given back when it is dropped before its end.

use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;

use crate::file::{Purpose, StoredFile};
use crate::folder::Kind;
use crate::store::{Store, StoreError};

/// A file that is being received.
#[derive(Debug)]
pub struct Upload {
    store: Arc<Store>,
    id: String,
    file: File,
    bytes: u64,
    state: UploadState,
}

#[derive(Debug, PartialEq, Eq)]
enum UploadState {
    Receiving,
    Stored,
}

/// What is known of a file that was received.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct NewFile {
    pub tenant: String,
    pub filename: String,
    pub purpose: Purpose,
    /// Seconds since 1970.
    pub created_at: u64,
    /// Seconds since 1970.
    pub expires_at: Option<u64>,
}

impl Upload {
    /// Begins to receive a file.
    pub fn begin(store: &Arc<Store>) -> Result<Self, StoreError> {
        let id = store.new_id("file-");
        let file = File::create(store.folder().part(&id))?;
        Ok(Self { store: Arc::clone(store), id, file, bytes: 0, state: UploadState::Receiving })
    }

    /// How many bytes were received.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds bytes. Fails where the files of all clients have no room for them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.store.take(bytes.len() as u64)?;
        self.bytes += bytes.len() as u64;
        Ok(self.file.write_all(bytes)?)
    }

    /// Stores the file. It is on the disk then.
    pub fn finish(mut self, new: NewFile) -> Result<StoredFile, StoreError> {
        self.file.sync_all()?;
        let folder = self.store.folder();
        let NewFile { tenant, filename, purpose, created_at, expires_at } = new;
        let (id, bytes, number) = (self.id.clone(), self.bytes, self.store.next_number());
        fs::rename(folder.part(&id), folder.data(&id))?;
        let file = StoredFile { id, tenant, number, filename, purpose, bytes, created_at, expires_at };
        folder.write(Kind::File, &file.id, &file)?;
        self.store.add_file(file.clone());
        self.state = UploadState::Stored;
        Ok(file)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.state == UploadState::Stored {
            return;
        }
        let folder = self.store.folder();
        let removed = fs::remove_file(folder.part(&self.id)).or_else(|_| folder.remove_data(&self.id));
        if let Err(error) = removed {
            tracing::warn!(%error, id = self.id, "the part of a file that was received is still there");
        }
        self.store.give_back(self.bytes);
    }
}
