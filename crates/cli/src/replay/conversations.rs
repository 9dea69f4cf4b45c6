//! Conversations of the recorded requests, and those of the server that stand for them.
//!
//! Invariant: requests of one conversation are sent one after another, because each reads what the last one left in it.

use std::collections::BTreeMap;

use omnibus_server::Record;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

/// The field that names a conversation, by its id or as an object with it.
pub const FIELD: &str = "conversation";

/// Conversations by their recorded ids.
pub struct Conversations(BTreeMap<String, Conversation>);

/// The id that the server gave it, once there is one.
type Conversation = Mutex<Option<String>>;

impl Conversations {
    /// The ones that any of the records names.
    pub fn of(records: &[Record]) -> Self {
        let bodies = records.iter().filter_map(|record| record.body.as_ref());
        Self(bodies.filter_map(id).map(|id| (id.to_owned(), Conversation::default())).collect())
    }

    /// The conversation of a request, when all earlier requests of it have ended. None for a request without one.
    pub async fn turn(&self, body: &Value) -> Option<MutexGuard<'_, Option<String>>> {
        Some(self.0.get(id(body)?)?.lock().await)
    }
}

fn id(body: &Value) -> Option<&str> {
    let named = body.get(FIELD)?;
    named.as_str().or_else(|| named.get("id")?.as_str())
}
