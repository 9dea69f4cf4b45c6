//! Responses that are kept for `previous_response_id` and GET, and conversations, which are kept as they are.
//!
//! Invariant: a tenant sees its own only. Number and bytes in memory are bounded: what was changed longest ago is dropped
//! first, and stays in the folder where there is one.

mod conversations;
mod disk;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::wire::responses::item_ids;
use crate::wire::responses::items::INPUT_PREFIX;
pub use conversations::{Conversation, ITEMS_MAX};
use disk::Folder;

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

    /// The item with this id. One of the input may have none of its own.
    fn item(&self, id: &str) -> Option<Value> {
        let output = self.response.get("output").and_then(Value::as_array).into_iter().flatten();
        let mut own = output.into_iter().chain(&self.input);
        let by_its_id = own.find(|item| item.get("id").and_then(Value::as_str) == Some(id));
        let named = |index: &usize| item_ids::of(INPUT_PREFIX, &self.id, *index) == id;
        let in_input = || (0..self.input.len()).find(named).and_then(|index| self.input.get(index));
        by_its_id.or_else(in_input).cloned()
    }

    /// Whether it is still generated.
    pub fn is_running(&self) -> bool {
        matches!(self.response.get("status").and_then(Value::as_str), Some("queued" | "in_progress"))
    }
}

/// The responses that are kept.
#[derive(Debug, Default)]
pub struct StoredResponses {
    inner: Mutex<Inner>,
    folder: Option<Folder>,
    /// Held while a conversation is read, changed and written.
    changes: Mutex<()>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: BTreeMap<String, (StoredResponse, usize)>,
    /// What was changed longest ago first. An id may be of a response that was removed.
    order: VecDeque<String>,
    bytes: usize,
}

impl StoredResponses {
    /// Responses that are kept in a folder of a state directory, too.
    pub fn in_folder(state: &Path) -> io::Result<Self> {
        Ok(Self { folder: Some(Folder::open(state)?), ..Self::default() })
    }

    /// Keeps a response, in place of an older state of it. One that has ended is written to the folder.
    pub fn insert(&self, response: StoredResponse) {
        if let Some(folder) = self.folder.as_ref().filter(|_| !response.is_running()) {
            folder.write(&response);
        }
        let bytes = size(&response.response) + response.input.iter().map(size).sum::<usize>();
        let mut inner = self.lock();
        let id = response.id.clone();
        if let Some((_, before)) = inner.by_id.insert(id.clone(), (response, bytes)) {
            inner.bytes -= before;
            inner.order.retain(|other| *other != id);
        }
        inner.order.push_back(id);
        inner.bytes += bytes;
        while inner.by_id.len() > COUNT_MAX || (inner.bytes > BYTES_MAX && inner.by_id.len() > 1) {
            let Some(oldest) = inner.order.pop_front() else { return };
            inner.remove(&oldest);
        }
    }

    /// How many are in memory.
    pub fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// A response of this tenant.
    pub fn get(&self, tenant: &str, id: &str) -> Option<StoredResponse> {
        self.read(tenant, id).filter(|_| !conversations::is_id(id))
    }

    fn read(&self, tenant: &str, id: &str) -> Option<StoredResponse> {
        let kept = self.lock().by_id.get(id).map(|(found, _)| found.clone());
        let found = kept.or_else(|| self.folder.as_ref()?.read(id))?;
        (found.tenant == tenant).then_some(found)
    }

    /// An item of a response or conversation of this tenant.
    pub fn item(&self, tenant: &str, id: &str) -> Option<Value> {
        item_ids::owners_of(id)?.iter().find_map(|owner| self.item_of(owner, tenant, id))
    }

    fn item_of(&self, owner: &str, tenant: &str, id: &str) -> Option<Value> {
        let of = |found: &StoredResponse| found.item(id).filter(|_| found.tenant == tenant);
        if let Some((found, _)) = self.lock().by_id.get(owner) {
            return of(found);
        }
        of(&self.folder.as_ref()?.read(owner)?)
    }

    /// Removes a response of this tenant; false when there is none.
    pub fn remove(&self, tenant: &str, id: &str) -> bool {
        if self.read(tenant, id).is_none() {
            return false;
        }
        let mut inner = self.lock();
        inner.remove(id);
        inner.order.retain(|other| other != id);
        if let Some(folder) = &self.folder {
            folder.remove(id);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_folder_outlives_the_process_and_takes_only_our_ids() {
        let state = std::env::temp_dir().join(format!("omnibus-responses-{}", std::process::id()));
        let id = format!("resp_{:032x}", 7);
        let store = StoredResponses::in_folder(&state).unwrap();
        store.insert(response(&id, "x"));
        store.insert(response("resp_../../etc", "x"));
        let later = StoredResponses::in_folder(&state).unwrap();
        assert_eq!(later.get("a", &id), Some(response(&id, "x")));
        assert_eq!((later.get("b", &id), later.get("a", "resp_../../etc")), (None, None));
        assert!(later.remove("a", &id));
        assert_eq!(StoredResponses::in_folder(&state).unwrap().get("a", &id), None);
        std::fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn an_item_is_found_by_its_id_in_memory_and_in_the_folder() {
        let state = std::env::temp_dir().join(format!("omnibus-items-{}", std::process::id()));
        let id = format!("resp_{:032x}", 9);
        let (said, asked) = (item_ids::of("msg", &id, 0), item_ids::of(INPUT_PREFIX, &id, 0));
        let output = json!({"id": said, "content": "x"});
        let stored = StoredResponse {
            response: json!({"status": "completed", "output": [output]}),
            ..response(&id, "x")
        };
        let store = StoredResponses::in_folder(&state).unwrap();
        store.insert(stored);
        for store in [store, StoredResponses::in_folder(&state).unwrap()] {
            assert_eq!(store.item("a", &said), Some(output.clone()));
            assert_eq!(store.item("a", &asked), Some(json!({"content": "hi"})));
            let unknown =
                [item_ids::of("msg", &id, 1), item_ids::of(INPUT_PREFIX, &id, 1), "msg_1".to_owned()];
            assert!(unknown.iter().all(|id| store.item("a", id).is_none()));
            assert_eq!(store.item("b", &said), None);
        }
        std::fs::remove_dir_all(state).unwrap();
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
