//! Items of MCP servers in a conversation: calls with their results, and approvals.
//!
//! Invariant: a call that is to be made now is the one that waits for the approval, whatever the client says of it.

use std::collections::{BTreeMap, BTreeSet};

use omnibus_mcp::web_search::WEB_SEARCH;
use omnibus_mcp::{Call, offered};
use serde_json::{Value, json};

use crate::api::RequestContext;
use crate::error::ApiError;
use crate::lower::opaque;
use crate::mcp::{ApprovedCall, PendingCall};

/// A conversation whose calls of MCP tools are calls of functions, as the model made them.
pub struct History {
    /// The items.
    pub items: Vec<Value>,
    /// The servers whose tools were listed before.
    pub listed: BTreeSet<String>,
    /// Calls that were approved now.
    pub approved: Vec<(ApprovedCall, PendingCall)>,
}

/// A request for an approval in the conversation.
struct Requested {
    label: String,
    name: String,
    arguments: String,
}

impl History {
    /// The history in the items of a request.
    pub fn of(items: &[Value], context: &RequestContext<'_>) -> Result<Self, ApiError> {
        let made: BTreeSet<&str> = items
            .iter()
            .filter(|item| is(item, "mcp_call"))
            .filter_map(|item| text(item, "approval_request_id"))
            .collect();
        let mut history = Self { items: Vec::new(), listed: BTreeSet::new(), approved: Vec::new() };
        let mut requested = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            match item.get("type").and_then(Value::as_str) {
                Some("mcp_list_tools") => {
                    history.listed.extend(text(item, "server_label").map(str::to_owned))
                }
                Some("mcp_call") => history.call(item, index)?,
                Some("web_search_call") => history.search(item),
                Some("mcp_approval_request") => {
                    let of = |name: &str| required(item, index, name).map(str::to_owned);
                    let request = Requested {
                        label: of("server_label")?,
                        name: of("name")?,
                        arguments: of("arguments")?,
                    };
                    requested.insert(of("id")?, request);
                }
                Some("mcp_approval_response") => {
                    let id = required(item, index, "approval_request_id")?;
                    let request = requested.remove(id);
                    if !made.contains(id) {
                        history.response(item, (index, id), request, context)?;
                    }
                }
                _ => history.items.push(item.clone()),
            }
        }
        Ok(history)
    }

    /// A call with its result.
    fn call(&mut self, item: &Value, index: usize) -> Result<(), ApiError> {
        let of = |name: &str| required(item, index, name);
        let id = text(item, "id").unwrap_or("mcp");
        let name = offered(of("server_label")?, of("name")?);
        let result = text(item, "output").or(text(item, "error")).unwrap_or("the call has no result");
        self.push(id, &name, of("arguments")?, Some(result));
        Ok(())
    }

    /// A search of the web whose result this server made; others have no text for the model.
    fn search(&mut self, item: &Value) {
        let found = text(item, "encrypted_content").and_then(opaque::decode);
        let query = item.get("action").and_then(|action| text(action, "query"));
        if let (Some(found), Some(query)) = (found, query) {
            let arguments = json!({"query": query}).to_string();
            self.push(text(item, "id").unwrap_or("ws"), WEB_SEARCH, &arguments, Some(&found));
        }
    }

    /// An approval or a refusal, for which there is no call yet.
    fn response(
        &mut self,
        item: &Value,
        (index, id): (usize, &str),
        requested: Option<Requested>,
        context: &RequestContext<'_>,
    ) -> Result<(), ApiError> {
        let at = format!("input[{index}]");
        let approve = item.get("approve").and_then(Value::as_bool).ok_or_else(|| {
            let at = format!("{at}.approve");
            ApiError::invalid(&at, format!("`{at}` must be true or false"))
        })?;
        let pending = context.mcp.and_then(|mcp| mcp.approvals.get(id, &context.caller.tenant));
        match (approve, pending, requested) {
            (true, Some(pending), _) => {
                let name = offered(&pending.label, &pending.tool);
                self.push(id, &name, &pending.arguments, None);
                let call = Call { id: id.to_owned(), name, arguments: pending.arguments.clone() };
                self.approved.push((ApprovedCall { call, approval_id: id.to_owned() }, pending));
                Ok(())
            }
            (false, _, Some(Requested { label, name, arguments })) => {
                let reason = text(item, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
                let result = format!("The user declined this call{reason}");
                self.push(id, &offered(&label, &name), &arguments, Some(&result));
                Ok(())
            }
            (false, Some(pending), None) => {
                let name = offered(&pending.label, &pending.tool);
                self.push(id, &name, &pending.arguments, Some("The user declined this call"));
                Ok(())
            }
            _ => {
                let at = format!("{at}.approval_request_id");
                let message = format!(
                    "no call waits for the approval `{id}`: it was used, came too late, or is not known"
                );
                Err(ApiError::invalid(at, message).with_code("approval_not_found"))
            }
        }
    }

    fn push(&mut self, id: &str, name: &str, arguments: &str, result: Option<&str>) {
        self.items
            .push(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}));
        if let Some(output) = result {
            self.items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
        }
    }
}

fn is(item: &Value, kind: &str) -> bool {
    text(item, "type") == Some(kind)
}

fn text<'a>(item: &'a Value, name: &str) -> Option<&'a str> {
    item.get(name).and_then(Value::as_str)
}

fn required<'a>(item: &'a Value, index: usize, name: &str) -> Result<&'a str, ApiError> {
    text(item, name).ok_or_else(|| {
        let at = format!("input[{index}].{name}");
        ApiError::invalid(&at, format!("`{at}` must be a string"))
    })
}
