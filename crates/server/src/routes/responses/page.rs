//! Pages of items: of a response's input, and of a conversation.

use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::wire::responses::items::id_of;
use crate::wire::responses::response::ItemList;

/// Most items of one page.
const ITEMS_MAX: usize = 100;

/// Which items to list.
#[derive(Debug, Default, Deserialize)]
pub struct Page {
    limit: Option<usize>,
    order: Option<String>,
    after: Option<String>,
}

impl Page {
    /// This page of items, which come oldest first.
    pub fn of(self, mut items: Vec<Value>) -> Result<ItemList, ApiError> {
        match self.order.as_deref() {
            None | Some("desc") => items.reverse(),
            Some("asc") => {}
            Some(other) => {
                return Err(ApiError::invalid(
                    "order",
                    format!("`order` must be asc or desc, not `{other}`"),
                ));
            }
        }
        if let Some(after) = &self.after {
            let at = items.iter().position(|item| id_of(item).as_ref() == Some(after));
            let at = at.ok_or_else(|| ApiError::invalid("after", format!("no item has the id `{after}`")))?;
            items.drain(..=at);
        }
        let limit = self.limit.unwrap_or(20).clamp(1, ITEMS_MAX);
        let has_more = items.len() > limit;
        items.truncate(limit);
        Ok(list(items, has_more))
    }
}

/// A list of items.
pub fn list(items: Vec<Value>, has_more: bool) -> ItemList {
    let (first_id, last_id) = (items.first().and_then(id_of), items.last().and_then(id_of));
    ItemList { object: "list", data: items, first_id, last_id, has_more }
}

/// A query that cannot be read.
pub fn unreadable(error: axum::extract::rejection::QueryRejection) -> ApiError {
    ApiError::invalid("limit", error.body_text())
}
