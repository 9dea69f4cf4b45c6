//! Keeps a response where later requests look for it, while and after it is generated.

use std::sync::Arc;

use serde_json::Value;

use super::kept;
use crate::connection_memory::ConnectionMemory;
use crate::stored_responses::{StoredResponse, StoredResponses};
use crate::wire::responses::response::ResponseObject;

/// Keeps one response.
pub struct Recorder {
    tenant: String,
    /// The items of the conversation up to this response.
    input: Vec<Value>,
    /// The response itself.
    place: Place,
    /// The conversation that gets its items.
    conversation: Option<ConversationExtension>,
}

/// Where a response is kept.
pub enum Place {
    /// In the server.
    Store(Arc<StoredResponses>),
    /// In the connection that it came on.
    Connection(Arc<ConnectionMemory>),
    /// Nowhere.
    Nowhere,
}

/// What a conversation gets when a response has ended.
pub struct ConversationExtension {
    /// Where the conversation is.
    pub store: Arc<StoredResponses>,
    /// The conversation.
    pub id: String,
    /// How many items of the input it has already.
    pub had: usize,
}

impl Recorder {
    /// Keeps a response of a tenant, with the items of the conversation up to it.
    pub fn new(
        place: Place,
        tenant: String,
        input: Vec<Value>,
        conversation: Option<ConversationExtension>,
    ) -> Self {
        Self { tenant, input, place, conversation }
    }

    /// Replaces what is kept by the response as it is now.
    pub fn record(&self, response: &ResponseObject) {
        let stored = || StoredResponse {
            id: response.id.clone(),
            tenant: self.tenant.clone(),
            input: self.input.clone(),
            response: kept(response),
        };
        let has_ended = matches!(response.status, "completed" | "incomplete");
        match &self.place {
            Place::Store(store) => store.insert(stored()),
            Place::Connection(memory) if has_ended => memory.keep(stored()),
            Place::Connection(_) | Place::Nowhere => {}
        }
        if let Some(ConversationExtension { store, id, had }) =
            self.conversation.as_ref().filter(|_| has_ended)
        {
            let new = self.input.iter().skip(*had).chain(&response.output).cloned().collect();
            // A conversation that was removed meanwhile stays removed.
            _ = store.change_conversation(&self.tenant, id, |found| found.append(new));
        }
    }
}
