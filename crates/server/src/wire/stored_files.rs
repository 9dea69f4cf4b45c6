//! `/v1/files`, as in OpenAI's API.

use omnibus_batches::{Purpose, StoredFile};
use serde::{Deserialize, Serialize};

use super::fields::{Field, honoured};
use super::form::FormFields;
use crate::error::ApiError;

/// Fields of a file that is sent.
pub const UPLOAD: &[Field] = &[
    honoured("file", "JSON lines: requests of a batch"),
    honoured("purpose", "`batch`; others are refused"),
    honoured("expires_after[anchor]", "`created_at`"),
    honoured(
        "expires_after[seconds]",
        "an hour to 30 days, after which the file is removed; 30 days when absent",
    ),
];

/// Seconds that a file is kept at least.
pub const KEPT_MIN: u64 = 3600;
/// Seconds that a file is kept at most, and by default.
pub const KEPT_MAX: u64 = 30 * 24 * 3600;

/// The fields beside the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadFields {
    /// Seconds that it is kept.
    pub expires_after: u64,
}

impl UploadFields {
    /// Reads them.
    pub fn read(mut fields: FormFields) -> Result<Self, ApiError> {
        let missing = || ApiError::invalid("purpose", "`purpose` is missing");
        let purpose = fields.text("purpose")?.ok_or_else(missing)?;
        if purpose != Purpose::Batch.name() {
            let message =
                format!("`purpose` must be `batch`, not `{purpose}`: this server keeps files for batches");
            return Err(ApiError::unsupported("purpose", message));
        }
        check_anchor("expires_after[anchor]", fields.text("expires_after[anchor]")?.as_deref())?;
        let seconds = fields.whole("expires_after[seconds]")?;
        Ok(Self { expires_after: kept("expires_after[seconds]", seconds)? })
    }
}

/// Fails for an anchor that is not the time of creation.
pub fn check_anchor(at: &str, anchor: Option<&str>) -> Result<(), ApiError> {
    match anchor {
        None | Some("created_at") => Ok(()),
        Some(other) => Err(ApiError::invalid(at, format!("`{at}` must be created_at, not `{other}`"))),
    }
}

/// How many seconds a file is kept.
pub fn kept(at: &str, seconds: Option<u64>) -> Result<u64, ApiError> {
    match seconds {
        None => Ok(KEPT_MAX),
        Some(seconds @ KEPT_MIN..=KEPT_MAX) => Ok(seconds),
        Some(_) => Err(ApiError::invalid(at, format!("`{at}` must be between {KEPT_MIN} and {KEPT_MAX}"))),
    }
}

/// The name of a purpose.
pub trait PurposeName {
    /// As in the API.
    fn name(self) -> &'static str;
}

impl PurposeName for Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::BatchOutput => "batch_output",
            Self::Internal => "internal",
        }
    }
}

/// A file.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct FileObject {
    pub id: String,
    pub object: &'static str,
    pub bytes: u64,
    pub created_at: u64,
    pub expires_at: Option<u64>,
    pub filename: String,
    pub purpose: &'static str,
    pub status: &'static str,
}

impl From<StoredFile> for FileObject {
    fn from(file: StoredFile) -> Self {
        let StoredFile { id, filename, purpose, bytes, created_at, expires_at, .. } = file;
        let (object, status) = ("file", "processed");
        Self { id, object, bytes, created_at, expires_at, filename, purpose: purpose.name(), status }
    }
}

/// A page of objects.
#[derive(Debug, Clone, Serialize)]
pub struct ObjectList<T> {
    /// `list`
    pub object: &'static str,
    #[allow(missing_docs)]
    pub data: Vec<T>,
    #[allow(missing_docs)]
    pub first_id: Option<String>,
    #[allow(missing_docs)]
    pub last_id: Option<String>,
    /// Whether others follow.
    pub has_more: bool,
}

/// Which files to list.
#[derive(Debug, Default, Deserialize)]
#[allow(missing_docs)]
pub struct FileQuery {
    pub purpose: Option<String>,
    pub limit: Option<usize>,
    pub order: Option<String>,
    pub after: Option<String>,
}

/// A file that was removed.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct DeletedFile {
    pub id: String,
    pub object: &'static str,
    pub deleted: bool,
}
