//! The query `?key=NAME`: whose objects a request is about.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::Deserialize;

use crate::error::ApiError;
use crate::keys::Key;

/// Whose objects.
#[derive(Debug, Default, Deserialize)]
pub struct Owner {
    /// The name of a key.
    key: Option<String>,
}

/// The query of a request.
pub type OwnerQuery = Result<Query<Owner>, QueryRejection>;

/// The tenant that the query names, which only an administrator may do for another key; `None` where it names none.
pub fn named(key: &Key, owner: OwnerQuery) -> Result<Option<String>, ApiError> {
    let Query(Owner { key: name }) = owner.map_err(|error| ApiError::invalid("key", error.body_text()))?;
    name.map(|name| key.check_name(&name).map(|()| name)).transpose()
}

/// The tenant that the query names, else the key's own.
pub fn tenant(key: &Key, owner: OwnerQuery) -> Result<String, ApiError> {
    Ok(named(key, owner)?.unwrap_or_else(|| key.name.clone()))
}
