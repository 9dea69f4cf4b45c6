//! Items of the search of the web.
//!
//! Invariant: an item has its place when the search begins. What the model read is in it, for requests that send it back.

use omnibus_mcp::web_search::pages;
use serde_json::{Value, json};

use super::events::Events;
use super::kept;
use crate::lower::opaque;
use crate::response::{Found, Frames};
use crate::wire::responses::SearchDetails;
use crate::wire::responses::item_ids;
use crate::wire::responses::response::{EventData, OutputItem, SearchAction, SearchItem, TextEvent};

/// The searches without a result.
pub struct Searches {
    details: SearchDetails,
    open: Vec<OpenSearch>,
}

struct OpenSearch {
    call_id: String,
    output_index: usize,
    item: SearchItem,
}

impl OpenSearch {
    fn place(&self) -> EventData {
        let (item_id, output_index) = (self.item.id.clone(), self.output_index);
        EventData::Text(TextEvent { item_id, output_index, ..TextEvent::default() })
    }

    fn shown(&self) -> EventData {
        let item = OutputItem::Search(self.item.clone());
        EventData::Item { output_index: self.output_index, item }
    }
}

impl Searches {
    /// None yet.
    pub fn new(details: SearchDetails) -> Self {
        Self { details, open: Vec::new() }
    }

    /// A search begins. `done` are the items of the response, whose id is beside them.
    pub fn start(
        &mut self,
        (call_id, query): (String, String),
        (response_id, done): (&str, &mut Vec<Value>),
        events: &mut Events,
        frames: &mut Frames,
    ) {
        let output_index = done.len();
        let action = SearchAction { kind: "search", queries: vec![query.clone()], query, sources: None };
        let item = SearchItem {
            kind: "web_search_call",
            id: item_ids::of("ws", response_id, output_index),
            status: "in_progress",
            action,
            results: None,
            encrypted_content: None,
        };
        done.push(kept(&item));
        let open = OpenSearch { call_id, output_index, item };
        events.push("response.output_item.added", open.shown(), frames);
        events.push("response.web_search_call.in_progress", open.place(), frames);
        events.push("response.web_search_call.searching", open.place(), frames);
        self.open.push(open);
    }

    /// A search has ended.
    pub fn end(
        &mut self,
        (call_id, found): (&str, Found),
        done: &mut [Value],
        events: &mut Events,
        frames: &mut Frames,
    ) {
        let Some(index) = self.open.iter().rposition(|open| open.call_id == call_id) else { return };
        let mut open = self.open.remove(index);
        match found {
            Found::Text(text) => {
                self.fill(&mut open.item, &text);
                events.push("response.web_search_call.completed", open.place(), frames);
            }
            Found::Failed(_) => open.item.status = "failed",
        }
        if let Some(place) = done.get_mut(open.output_index) {
            *place = kept(&open.item);
        }
        events.push("response.output_item.done", open.shown(), frames);
    }

    fn fill(&self, item: &mut SearchItem, text: &str) {
        let found = pages(text);
        item.status = "completed";
        item.encrypted_content = Some(opaque::encode(text));
        if self.details.sources {
            let source = |url: &str| json!({"type": "url", "url": url});
            item.action.sources = Some(found.iter().map(|page| source(&page.url)).collect());
        }
        if self.details.results {
            let result = |page: &omnibus_mcp::web_search::Page| json!({"url": page.url, "title": page.title, "snippet": page.text});
            item.results = Some(found.iter().map(result).collect());
        }
    }
}
