//! Responses that are kept for `previous_response_id` and GET.
//!
//! Invariant: a tenant sees its own responses only. Number and bytes are bounded: the oldest are dropped first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Most responses.
const COUNT_MAX: usize = 4096;
/// Most bytes of all, as JSON.
const BYTES_MAX: usize = 256 << 20;

/// A response that is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredResponse {
    /// `resp_…`
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// The items of the conversation up to it.
    pub input: Vec<Value>,
    /// As it is returned.
    pub response: Value,
}

impl StoredResponse {
    /// The conversation up to and with this response.
    pub fn conversation(&self) -> Vec<Value> {
        let output = self.response.get("output").and_then(Value::as_array);
        self.input.iter().chain(output.into_iter().flatten()).cloned().collect()
    }

    /// Whether it is still generated.
    pub fn is_running(&self) -> bool {
        matches!(self.response.get("status").and_then(Value::as_str), Some("queued" | "in_progress"))
    }
}

/// The responses that are kept.
#[derive(Debug, Default)]
pub struct StoredResponses(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_id: BTreeMap<String, (StoredResponse, usize)>,
    /// Oldest first. An id may be of a response that was removed.
    order: VecDeque<String>,
    bytes: usize,
}

impl StoredResponses {
    /// Keeps a response, in place of an older state of it.
    pub fn insert(&self, response: StoredResponse) {
        let bytes = size(&response.response) + response.input.iter().map(size).sum::<usize>();
        let mut inner = self.lock();
        let id = response.id.clone();
        match inner.by_id.insert(id.clone(), (response, bytes)) {
            Some((_, before)) => inner.bytes -= before,
            None => inner.order.push_back(id),
        }
        inner.bytes += bytes;
        while inner.by_id.len() > COUNT_MAX || (inner.bytes > BYTES_MAX && inner.by_id.len() > 1) {
            let Some(oldest) = inner.order.pop_front() else { return };
            inner.remove(&oldest);
        }
    }

    /// A response of this tenant.
    pub fn get(&self, tenant: &str, id: &str) -> Option<StoredResponse> {
        let inner = self.lock();
        let (found, _) = inner.by_id.get(id)?;
        (found.tenant == tenant).then(|| found.clone())
    }

    /// Removes a response of this tenant; false when there is none.
    pub fn remove(&self, tenant: &str, id: &str) -> bool {
        let mut inner = self.lock();
        let is_own = inner.by_id.get(id).is_some_and(|(found, _)| found.tenant == tenant);
        if is_own {
            inner.remove(id);
            inner.order.retain(|other| other != id);
        }
        is_own
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remove(&mut self, id: &str) {
        if let Some((_, bytes)) = self.by_id.remove(id) {
            self.bytes -= bytes;
        }
    }
}

/// About how many bytes a value takes. The depth was bounded when it was read.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 16,
        Value::String(text) => 32 + text.len(),
        Value::Array(items) => 32 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 32 + map.iter().map(|(key, value)| 32 + key.len() + size(value)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response(id: &str, text: &str) -> StoredResponse {
        StoredResponse {
            id: id.to_owned(),
            tenant: "a".to_owned(),
            input: vec![json!({"content": "hi"})],
            response: json!({"status": "completed", "output": [{"content": text}]}),
        }
    }

    #[test]
    fn a_tenant_sees_its_own_responses_only() {
        let store = StoredResponses::default();
        store.insert(response("1", "x"));
        assert_eq!(store.get("b", "1"), None);
        assert!(!store.remove("b", "1"));
        let items = store.get("a", "1").unwrap().conversation();
        assert_eq!(items, [json!({"content": "hi"}), json!({"content": "x"})]);
        assert!(store.remove("a", "1"));
        assert_eq!(store.get("a", "1"), None);
    }

    #[test]
    fn the_oldest_are_dropped_when_there_are_too_many() {
        let store = StoredResponses::default();
        for id in 0..COUNT_MAX + 2 {
            store.insert(response(&id.to_string(), "x"));
        }
        assert_eq!(store.get("a", "1"), None);
        assert!(store.get("a", "2").is_some());
    }

    #[test]
    fn bytes_are_bounded_and_a_new_state_replaces_the_old_one() {
        let store = StoredResponses::default();
        let large = "x".repeat(BYTES_MAX / 3);
        for id in ["1", "2", "2", "2"] {
            store.insert(response(id, &large));
        }
        assert!(store.get("a", "1").is_some(), "one response counts once");
        store.insert(response("3", &large));
        assert_eq!(store.get("a", "1"), None);
        assert!(store.get("a", "3").is_some());
    }
}
