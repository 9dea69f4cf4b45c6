//! Keeps a response in the store while and after it is generated.

use std::sync::Arc;

use serde_json::Value;

use super::kept;
use crate::stored_responses::{StoredResponse, StoredResponses};
use crate::wire::responses::response::ResponseObject;

/// Keeps one response.
pub struct Recorder {
    store: Arc<StoredResponses>,
    tenant: String,
    /// The items of the conversation up to this response.
    input: Vec<Value>,
}

impl Recorder {
    /// Keeps a response of a tenant, with the items of the conversation up to it.
    pub fn new(store: Arc<StoredResponses>, tenant: String, input: Vec<Value>) -> Self {
        Self { store, tenant, input }
    }

    /// Replaces what is kept by the response as it is now.
    pub fn record(&self, response: &ResponseObject) {
        self.store.insert(StoredResponse {
            id: response.id.clone(),
            tenant: self.tenant.clone(),
            input: self.input.clone(),
            response: kept(response),
        });
    }
}
