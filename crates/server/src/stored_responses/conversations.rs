//! Conversations, in the store of responses: one bound and one folder for both.
//!
//! Invariant: every item has an id of its own. One change is complete before the next begins.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{StoredResponse, StoredResponses, size};
use crate::wire::responses::item_ids::CONVERSATION_PREFIX;
use crate::wire::responses::items::{id_of, in_full, with_id};

/// Most items of one conversation.
pub const ITEMS_MAX: usize = 4096;
/// About the most bytes of one conversation.
const BYTES_MAX: usize = 32 << 20;

/// A conversation that is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// `conv_…`
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Unix seconds.
    pub created_at: u64,
    /// As sent.
    pub metadata: Map<String, Value>,
    /// Oldest first.
    pub items: Vec<Value>,
    /// How many items it ever had: the next one's number.
    added: usize,
}

/// Whether an id is of a conversation.
pub fn is_id(id: &str) -> bool {
    id.starts_with(CONVERSATION_PREFIX)
}

impl Conversation {
    /// A new one without items.
    pub fn new(tenant: &str, metadata: Map<String, Value>) -> Self {
        Self {
            id: format!("{CONVERSATION_PREFIX}{}", Uuid::new_v4().simple()),
            tenant: tenant.to_owned(),
            created_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            metadata,
            items: Vec::new(),
            added: 0,
        }
    }

    /// Whether there is room for as many more items.
    pub fn has_room(&self, items: usize) -> bool {
        self.items.len() + items <= ITEMS_MAX && self.items.iter().map(size).sum::<usize>() < BYTES_MAX
    }

    /// Appends items, and returns them with their ids. An id that another item has is replaced.
    pub fn append(&mut self, items: Vec<Value>) -> Vec<Value> {
        let mut taken: BTreeSet<String> = self.items.iter().filter_map(id_of).collect();
        let from = self.items.len();
        for mut item in items {
            if id_of(&item).is_some_and(|id| !taken.insert(id))
                && let Some(fields) = item.as_object_mut()
            {
                fields.remove("id");
            }
            self.items.push(in_full(with_id(item, &self.id, self.added)));
            self.added += 1;
        }
        self.items.get(from..).unwrap_or_default().to_vec()
    }

    fn into_stored(self) -> StoredResponse {
        let Self { id, tenant, created_at, metadata, items, added } = self;
        let response = json!({"created_at": created_at, "metadata": metadata, "added": added});
        StoredResponse { id, tenant, input: items, response }
    }

    fn of_stored(stored: StoredResponse) -> Option<Self> {
        let StoredResponse { id, tenant, input, mut response } = stored;
        let added = usize::try_from(response.get("added")?.as_u64()?).ok()?;
        let created_at = response.get("created_at")?.as_u64()?;
        let Value::Object(metadata) = response.get_mut("metadata")?.take() else { return None };
        Some(Self { id, tenant, created_at, metadata, items: input, added })
    }
}

impl StoredResponses {
    /// Keeps a new conversation.
    pub fn add_conversation(&self, conversation: Conversation) {
        self.insert(conversation.into_stored());
    }

    /// A conversation of this tenant.
    pub fn conversation(&self, tenant: &str, id: &str) -> Option<Conversation> {
        Conversation::of_stored(self.read(tenant, id).filter(|_| is_id(id))?)
    }

    /// Changes a conversation of this tenant. `None` when there is none.
    pub fn change_conversation<T>(
        &self,
        tenant: &str,
        id: &str,
        change: impl FnOnce(&mut Conversation) -> T,
    ) -> Option<T> {
        let _changing = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut conversation = self.conversation(tenant, id)?;
        let result = change(&mut conversation);
        self.insert(conversation.into_stored());
        Some(result)
    }

    /// Removes a conversation of this tenant; false when there is none.
    pub fn remove_conversation(&self, tenant: &str, id: &str) -> bool {
        let _changing = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        is_id(id) && self.remove(tenant, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(store: &StoredResponses) -> String {
        let mut new = Conversation::new("a", Map::new());
        new.append(vec![json!({"role": "user", "content": "hi"})]);
        let id = new.id.clone();
        store.add_conversation(new);
        id
    }

    #[test]
    fn a_conversation_is_no_response_and_belongs_to_its_tenant() {
        let store = StoredResponses::default();
        let id = conversation(&store);
        assert!(store.conversation("a", &id).is_some());
        assert_eq!((store.conversation("b", &id), store.get("a", &id)), (None, None));
        assert!(!store.remove_conversation("b", &id));
        assert!(store.remove_conversation("a", &id));
        assert_eq!(store.change_conversation("a", &id, |_| ()), None);
    }

    #[test]
    fn items_keep_their_ids_and_a_taken_id_is_replaced() {
        let store = StoredResponses::default();
        let id = conversation(&store);
        let item = |text: &str| json!({"id": "mine", "role": "user", "content": text});
        let added =
            store.change_conversation("a", &id, |found| found.append(vec![item("x"), item("y")])).unwrap();
        assert_eq!(added[0]["id"], "mine");
        let second = added[1]["id"].as_str().unwrap();
        assert_eq!(store.item("a", second).unwrap()["content"][0]["text"], "y");
        assert_eq!(store.item("b", second), None);
        let numbered = store.change_conversation("a", &id, |found| {
            found.items.clear();
            found.append(vec![json!({"role": "user", "content": "z"})])
        });
        assert!(numbered.unwrap()[0]["id"].as_str().unwrap().ends_with("0003"), "numbers are not used again");
    }

    #[test]
    fn a_conversation_is_in_the_folder_and_full_at_its_limits() {
        let state = tempfile::tempdir().unwrap();
        let store = StoredResponses::in_folder(state.path()).unwrap();
        let id = conversation(&store);
        let later = StoredResponses::in_folder(state.path()).unwrap();
        assert_eq!(later.conversation("a", &id), store.conversation("a", &id));
        let mut found = later.conversation("a", &id).unwrap();
        assert!(found.has_room(ITEMS_MAX - 1) && !found.has_room(ITEMS_MAX));
        found.append(vec![json!({"role": "user", "content": "x".repeat(BYTES_MAX)})]);
        assert!(!found.has_room(1));
    }
}
