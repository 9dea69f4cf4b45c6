//! What a user of the page decided about calls that waited for an approval.
//!
//! Invariant: a call that is made is the one that was shown, whatever the page says of it, and is shown to the model as its own.

use omnibus_mcp::{Call, offered};
use serde_json::{Map, Value, json};

use crate::api::RequestContext;
use crate::error::ApiError;
use crate::mcp::{ApprovedCall, PendingCall};
use crate::wire::fields::{Field, Fields, honoured, type_error};

/// Fields of a decision.
const FIELDS: &[Field] =
    &[honoured("id", "of the approval"), honoured("approve", "whether the call is made")];

/// What the model reads of a call that is not made.
const DECLINED: &str = "The user declined this call";

/// Takes the decisions out of the body of a chat, and adds their calls to its messages. Returns those that are made. Fails where
/// no call waits for an approval.
pub fn take(
    body: &mut Value,
    context: &RequestContext<'_>,
) -> Result<Vec<(ApprovedCall, PendingCall)>, ApiError> {
    let decisions = match body.as_object_mut().and_then(|fields| fields.remove("approvals")) {
        None => return Ok(Vec::new()),
        Some(Value::Array(decisions)) => decisions,
        Some(other) => return Err(type_error("approvals", "a list", &other)),
    };
    let (mut approved, mut messages) = (Vec::new(), Vec::new());
    for (index, decision) in decisions.into_iter().enumerate() {
        let mut fields = Fields::open(decision, &format!("approvals[{index}]"), &[FIELDS])?;
        let (id, approve) = (fields.text("id")?, fields.flag("approve")?);
        let (id, approve) = (fields.required("id", id)?, fields.required("approve", approve)?);
        let pending = pending(&id, approve, context).ok_or_else(|| gone(&fields.at("id"), &id))?;
        let call = Call {
            id: id.clone(),
            name: offered(&pending.label, &pending.tool),
            arguments: pending.arguments.clone(),
        };
        messages.push(message(&call));
        if approve {
            approved.push((ApprovedCall { call, approval_id: id }, pending));
        } else {
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": DECLINED}));
        }
    }
    add(messages, body);
    Ok(approved)
}

/// The call that waits. One that is declined waits no more; one that is approved does until it is made.
fn pending(id: &str, approve: bool, context: &RequestContext<'_>) -> Option<PendingCall> {
    let (approvals, tenant) = (&context.mcp?.approvals, &context.caller.tenant);
    if approve { approvals.get(id, tenant) } else { approvals.take(id, tenant) }
}

fn gone(at: &str, id: &str) -> ApiError {
    let message =
        format!("no call waits for the approval `{id}`: it was used, came too late, or is not known");
    ApiError::invalid(at, message).with_code("approval_not_found")
}

fn message(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "type": "function", "function": function}]})
}

fn add(messages: Vec<Value>, body: &mut Value) {
    let list = body.as_object_mut().map(|fields: &mut Map<String, Value>| fields.get_mut("messages"));
    if let Some(Some(Value::Array(list))) = list {
        list.extend(messages);
    }
}
