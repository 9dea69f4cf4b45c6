//! The last response of a WebSocket, which the next one on it may continue though it is kept nowhere else.
//!
//! Invariant: one response at most, and it ends with its connection.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::stored_responses::StoredResponse;

/// The memory of one connection.
#[derive(Debug, Default)]
pub struct ConnectionMemory(Mutex<Option<StoredResponse>>);

impl ConnectionMemory {
    /// Keeps a response in place of the one before.
    pub fn keep(&self, response: StoredResponse) {
        *self.lock() = Some(response);
    }

    /// The response with this id, if it is the last.
    pub fn get(&self, id: &str) -> Option<StoredResponse> {
        self.lock().clone().filter(|found| found.id == id)
    }

    /// Drops a response that could not be continued.
    pub fn evict(&self, id: &str) {
        self.lock().take_if(|found| found.id == id);
    }

    fn lock(&self) -> MutexGuard<'_, Option<StoredResponse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
