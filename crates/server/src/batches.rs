//! Batches: requests that run when the engine has room. `batch_runner` runs them.
//!
//! Invariant: a batch is on the disk before its client has its id.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use omnibus_batches::{Batch, Format, NewBatch, Store, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::error::ApiError;

/// Most requests of a batch.
pub const LINES_MAX: usize = 100_000;
/// Most bytes of a file.
pub const FILE_BYTES_MAX: u64 = 512 << 20;
/// Files that are received at a time.
const UPLOADS_MAX: usize = 8;

/// What a server's batches need.
#[derive(Debug, Clone)]
pub struct BatchSettings {
    /// Where they are kept.
    pub store: Arc<Store>,
    /// Requests that run at a time.
    pub width: usize,
}

/// The batches of a server.
pub struct Batches {
    /// Where they are kept.
    pub store: Arc<Store>,
    /// Requests that run at a time.
    pub width: usize,
    uploads: Semaphore,
    /// Sent when there is a new batch, or one is cancelled.
    changed: watch::Sender<()>,
}

impl Batches {
    /// Without any that run.
    pub fn new(settings: &BatchSettings) -> Self {
        Self {
            store: Arc::clone(&settings.store),
            width: settings.width.max(1),
            uploads: Semaphore::new(UPLOADS_MAX),
            changed: watch::Sender::new(()),
        }
    }

    /// A place to receive a file. Fails while others take all.
    pub fn upload_place(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.uploads.try_acquire().map_err(|_| ApiError::busy("the server is receiving too many files"))
    }

    /// Adds a batch, which begins as soon as it can.
    pub fn create(&self, tenant: &str, request: NewBatch) -> Result<Batch, ApiError> {
        let batch = self.store.create(tenant, request).map_err(failed)?;
        self.changed.send_replace(());
        Ok(batch)
    }

    /// Changes when there is a new batch, or one is cancelled.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Begins to cancel a batch.
    pub fn cancel(&self, tenant: &str, format: Format, id: &str) -> Result<Batch, ApiError> {
        let batch = self.store.cancel(tenant, format, id, now()).map_err(failed)?;
        self.changed.send_replace(());
        Ok(batch)
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a client gets of a failure of the store.
pub fn failed(error: StoreError) -> ApiError {
    let message = error.to_string();
    match error {
        StoreError::Io(error) => {
            tracing::error!(%error, "files of batches cannot be written");
            ApiError::unavailable("the server cannot write files at the moment")
        }
        StoreError::NotFound(_) => ApiError::not_found(message),
        StoreError::FileInUse(_) | StoreError::NotEnded(_) | StoreError::Ended(_) => {
            ApiError::conflict(message)
        }
        StoreError::Full(_) | StoreError::TooMany(_) => {
            ApiError::too_large(message).with_code("storage_full")
        }
    }
}
