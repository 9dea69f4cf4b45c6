//! Files that cannot be read, and reading them.

use std::path::Path;

use serde_json::{Map, Value};
use thiserror::Error;

/// Why a model's files say nothing that can be computed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}: {reason}")]
pub struct PoolerError {
    file: String,
    reason: String,
}

impl PoolerError {
    pub(crate) fn new(file: impl Into<String>, reason: impl ToString) -> Self {
        Self { file: file.into(), reason: reason.to_string() }
    }
}

/// Most bytes of a JSON file.
const JSON_MAX: u64 = 16 << 20;

/// A JSON file; `None` where there is none.
pub(crate) fn json(directory: &Path, file: &str) -> Result<Option<Value>, PoolerError> {
    let path = directory.join(file);
    let Ok(metadata) = std::fs::metadata(&path) else { return Ok(None) };
    if metadata.len() > JSON_MAX {
        return Err(PoolerError::new(file, format!("{} bytes, more than {JSON_MAX}", metadata.len())));
    }
    let bytes = std::fs::read(&path).map_err(|error| PoolerError::new(file, error))?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| PoolerError::new(file, error))
}

/// A JSON object; `None` where there is no such file.
pub(crate) fn object(directory: &Path, file: &str) -> Result<Option<Map<String, Value>>, PoolerError> {
    match json(directory, file)? {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(PoolerError::new(file, "is not an object")),
    }
}
