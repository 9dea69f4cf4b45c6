//! Pages of lists whose objects have ids.

use crate::error::ApiError;

/// The objects behind the one with an id; all without one. `field`: the parameter that names it.
pub fn behind<T>(
    objects: Vec<T>,
    id: impl Fn(&T) -> &str,
    (field, after): (&str, Option<&str>),
) -> Result<Vec<T>, ApiError> {
    let Some(after) = after else { return Ok(objects) };
    let at = objects.iter().position(|object| id(object) == after);
    let at = at.ok_or_else(|| ApiError::invalid(field, format!("`{field}`: none has the id `{after}`")))?;
    Ok(objects.into_iter().skip(at + 1).collect())
}

/// The first objects, and whether others follow.
pub fn first<T>(mut objects: Vec<T>, limit: usize) -> (Vec<T>, bool) {
    let has_more = objects.len() > limit;
    objects.truncate(limit);
    (objects, has_more)
}

/// How many objects to list.
pub fn limit(limit: Option<usize>, default: usize, most: usize) -> Result<usize, ApiError> {
    match limit {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => {
            Err(ApiError::invalid("limit", format!("`limit` must be between 1 and {most}, not {limit}")))
        }
    }
}

/// A query that cannot be read.
pub fn unreadable(error: axum::extract::rejection::QueryRejection) -> ApiError {
    ApiError::invalid("limit", error.body_text())
}
