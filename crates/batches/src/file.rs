//! A stored file: what is known of it beside its bytes.

use serde::{Deserialize, Serialize};

/// A stored file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// `file-…`
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Higher is newer.
    pub number: u64,
    /// As the client named it.
    pub filename: String,
    #[allow(missing_docs)]
    pub purpose: Purpose,
    #[allow(missing_docs)]
    pub bytes: u64,
    /// Seconds since 1970.
    pub created_at: u64,
    /// Seconds since 1970; it is removed then, unless a batch needs it.
    pub expires_at: Option<u64>,
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Requests.
    Batch,
    /// Results.
    BatchOutput,
    /// A part of a batch whose API has no files.
    Internal,
}
