//! The conversation of a request: the kept items that it continues or refers to, and its own.
//!
//! Invariant: no item appears twice by its id, so that a body cannot grow by referring to one item many times. An output
//! has its call before it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::RequestContext;
use crate::error::ApiError;
use crate::wire::responses::ResponsesRequest;
use crate::wire::responses::items::{id_of, reference};

/// The items of a request.
pub struct Conversation {
    /// All of them, oldest first.
    pub items: Vec<Value>,
    /// How many of them are not of the request itself.
    pub earlier: usize,
}

/// Takes the input of a request, after the items that it continues.
pub fn of(wire: &mut ResponsesRequest, context: &RequestContext<'_>) -> Result<Conversation, ApiError> {
    let new = std::mem::take(&mut wire.input);
    let mut items = match (&wire.previous, &wire.conversation) {
        (Some(_), Some(_)) => {
            let message = "`previous_response_id` does not go with `conversation`";
            return Err(ApiError::invalid("previous_response_id", message));
        }
        (Some(previous), None) => continued(previous, context)?,
        (None, Some(id)) => kept(id, new.len(), context)?,
        (None, None) => Vec::new(),
    };
    let earlier = items.len();
    let mut known: BTreeSet<String> = items.iter().filter_map(id_of).collect();
    let mut calls: BTreeSet<String> = items.iter().filter_map(call_id).collect();
    for (index, item) in new.into_iter().enumerate() {
        let item = resolved(item, &format!("input[{index}]"), &mut known, context)?;
        if is_output(&item) {
            check_call(&item, &format!("input[{index}].call_id"), &calls)?;
        } else {
            calls.extend(call_id(&item));
        }
        items.push(item);
    }
    Ok(Conversation { items, earlier })
}

fn continued(previous: &str, context: &RequestContext<'_>) -> Result<Vec<Value>, ApiError> {
    let of_connection = context.memory.as_ref().and_then(|memory| memory.get(previous));
    let stored = of_connection.or_else(|| context.responses.get(&context.caller.tenant, previous));
    let stored = stored.ok_or_else(|| {
        let message = format!("no stored response has the id `{previous}`");
        ApiError::invalid("previous_response_id", message).with_code("previous_response_not_found")
    })?;
    if stored.is_running() {
        let message = format!("the response `{previous}` is not complete");
        return Err(ApiError::invalid("previous_response_id", message));
    }
    Ok(stored.conversation())
}

/// The items of a kept conversation, which has room for those of this request.
fn kept(id: &str, new: usize, context: &RequestContext<'_>) -> Result<Vec<Value>, ApiError> {
    let found = context.responses.conversation(&context.caller.tenant, id).ok_or_else(|| {
        ApiError::unknown_object("conversation", format!("no conversation has the id `{id}`"))
    })?;
    if !found.has_room(new) {
        return Err(ApiError::invalid("conversation", format!("the conversation `{id}` is full")));
    }
    Ok(found.items)
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

fn call_id(item: &Value) -> Option<String> {
    item.get("call_id").and_then(Value::as_str).map(str::to_owned)
}

/// Whether an item is the output of a function or of a custom tool. Other outputs may name their calls in other ways.
fn is_output(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str);
    matches!(kind, Some("function_call_output" | "custom_tool_call_output"))
}

/// One without a call would be read as the output of another, or not at all.
fn check_call(item: &Value, at: &str, calls: &BTreeSet<String>) -> Result<(), ApiError> {
    match call_id(item) {
        Some(id) if !calls.contains(&id) => {
            Err(ApiError::invalid(at, format!("no call before this output has the id `{id}`")))
        }
        // A missing id is refused where the item is read.
        _ => Ok(()),
    }
}
