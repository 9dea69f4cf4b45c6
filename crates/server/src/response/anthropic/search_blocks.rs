//! Blocks of the search of the web: the model's query, and the pages that were found.

use omnibus_mcp::web_search::{Page, WEB_SEARCH, pages};
use serde_json::{Map, Value, json};

use crate::lower::opaque;
use crate::response::{CompletionPart, Found, SearchFailure, ToolEvent};
use crate::wire::anthropic::response::Block;
use crate::wire::anthropic::search::{block_id, piece};

/// The block of a search that begins.
pub fn call(id: &str, input: Map<String, Value>) -> Block {
    Block::ServerToolUse { id: block_id(id), name: WEB_SEARCH, input: Value::Object(input) }
}

/// The argument of a search.
pub fn input(query: String) -> Map<String, Value> {
    Map::from_iter([("query".to_owned(), Value::String(query))])
}

/// The block of what was found. What the model read is in it, for the next request.
pub fn result(id: &str, found: Found) -> Block {
    let content = match found {
        Found::Text(text) => Value::Array(results(text)),
        Found::Failed(failure) => {
            json!({"type": "web_search_tool_result_error", "error_code": failure.code()})
        }
    };
    Block::WebSearchToolResult { tool_use_id: block_id(id), content }
}

/// The block of an event of a search, of a whole message.
pub fn of(event: &ToolEvent) -> Option<Block> {
    match event {
        ToolEvent::SearchStarted { id, query } => Some(call(id, input(query.clone()))),
        ToolEvent::SearchEnded { id, found } => Some(result(id, found.clone())),
        _ => None,
    }
}

/// Whether a search was made.
pub fn is_made(found: &Found) -> bool {
    *found != Found::Failed(SearchFailure::MaxUses)
}

/// Whether a part is the end of a search that was made.
pub fn is_made_in(part: &CompletionPart) -> bool {
    matches!(part, CompletionPart::Tool(ToolEvent::SearchEnded { found, .. }) if is_made(found))
}

/// A text without pages is one result without an address.
fn results(text: String) -> Vec<Value> {
    let found = pages(&text);
    if found.is_empty() {
        let page = Page { title: WEB_SEARCH.to_owned(), ..Page::default() };
        return vec![shown(&page, &text)];
    }
    found.iter().map(|page| shown(page, &piece(page))).collect()
}

fn shown(page: &Page, text: &str) -> Value {
    json!({
        "type": "web_search_result",
        "url": page.url,
        "title": page.title,
        "encrypted_content": opaque::encode(text),
        "page_age": null,
    })
}
