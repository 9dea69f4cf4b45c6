//! The conversation of a request: the stored items that it continues or refers to, and its own.
//!
//! Invariant: no item appears twice by its id, so that a body cannot grow by referring to one item many times.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::RequestContext;
use crate::error::ApiError;
use crate::wire::responses::ResponsesRequest;
use crate::wire::responses::items::reference;

/// Takes the input of a request, after the items of the stored response that it continues.
pub fn items(wire: &mut ResponsesRequest, context: &RequestContext<'_>) -> Result<Vec<Value>, ApiError> {
    let new = std::mem::take(&mut wire.input);
    let mut all = match &wire.previous {
        Some(previous) => continued(previous, context)?,
        None => Vec::new(),
    };
    let mut known: BTreeSet<String> = all.iter().filter_map(id_of).collect();
    for (index, item) in new.into_iter().enumerate() {
        all.push(resolved(item, &format!("input[{index}]"), &mut known, context)?);
    }
    Ok(all)
}

fn continued(previous: &str, context: &RequestContext<'_>) -> Result<Vec<Value>, ApiError> {
    let stored = context.responses.get(&context.caller.tenant, previous).ok_or_else(|| {
        let message = format!("no stored response has the id `{previous}`");
        ApiError::invalid("previous_response_id", message).with_code("previous_response_not_found")
    })?;
    if stored.is_running() {
        let message = format!("the response `{previous}` is not complete");
        return Err(ApiError::invalid("previous_response_id", message));
    }
    Ok(stored.conversation())
}

/// An item itself, or the stored one that it refers to.
fn resolved(
    item: Value,
    at: &str,
    known: &mut BTreeSet<String>,
    context: &RequestContext<'_>,
) -> Result<Value, ApiError> {
    let Some(id) = reference(&item) else {
        known.extend(id_of(&item));
        return Ok(item);
    };
    let at = format!("{at}.id");
    if id.is_empty() {
        return Err(ApiError::invalid(&at, format!("`{at}` is missing")));
    }
    if !known.insert(id.to_owned()) {
        return Err(ApiError::invalid(at, format!("the item `{id}` is in the conversation already")));
    }
    let stored = context.responses.item(&context.caller.tenant, id);
    stored.ok_or_else(|| ApiError::unknown_object(at, format!("no stored item has the id `{id}`")))
}

fn id_of(item: &Value) -> Option<String> {
    item.get("id").and_then(Value::as_str).map(str::to_owned)
}
