//! `/v1/conversations`: conversations that are kept, and their items.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::{Extension, Json};
use serde_json::Value;

use super::page::{Page, list, unreadable};
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::stored_responses::{Conversation, ITEMS_MAX};
use crate::wire::responses::conversations::{ConversationObject, added, created, updated};
use crate::wire::responses::items::id_of;
use crate::wire::responses::response::{Deleted, ItemList};

type Id = Result<Path<String>, PathRejection>;
type ItemId = Result<Path<(String, String)>, PathRejection>;

/// Makes a conversation.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    request: Request,
) -> Result<Json<ConversationObject>, ApiError> {
    let body = app.bodies.json(request).await?;
    blocking(move || {
        let (items, metadata) = created(body.parse()?.0)?;
        let mut conversation = Conversation::new(&tenant, metadata);
        append(&mut conversation, items)?;
        let object = object(&conversation);
        app.responses.add_conversation(conversation);
        Ok(Json(object))
    })
    .await
}

/// A conversation.
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<ConversationObject>, ApiError> {
    let Path(id) = id?;
    Ok(Json(object(&found(&app, &tenant, &id)?)))
}

/// Changes the labels of a conversation.
pub async fn update(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
    request: Request,
) -> Result<Json<ConversationObject>, ApiError> {
    let Path(id) = id?;
    let body = app.bodies.json(request).await?;
    blocking(move || {
        let metadata = updated(body.parse()?.0)?;
        let change = |conversation: &mut Conversation| {
            conversation.metadata = metadata;
            object(conversation)
        };
        app.responses.change_conversation(&tenant, &id, change).map(Json).ok_or_else(|| unknown(&id))
    })
    .await
}

/// Removes a conversation. The responses that belong to it stay.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<Deleted>, ApiError> {
    let Path(id) = id?;
    match app.responses.remove_conversation(&tenant, &id) {
        true => Ok(Json(Deleted { id, object: "conversation.deleted", deleted: true })),
        false => Err(unknown(&id)),
    }
}

/// A page of the items of a conversation.
pub async fn items(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ItemList>, ApiError> {
    let (Path(id), Query(page)) = (id?, page.map_err(unreadable)?);
    page.of(found(&app, &tenant, &id)?.items).map(Json)
}

/// Appends items to a conversation.
pub async fn add_items(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
    request: Request,
) -> Result<Json<ItemList>, ApiError> {
    let Path(id) = id?;
    let body = app.bodies.json(request).await?;
    blocking(move || {
        let items = added(body.parse()?.0)?;
        let change = |conversation: &mut Conversation| append(conversation, items);
        let appended = app.responses.change_conversation(&tenant, &id, change);
        Ok(Json(list(appended.ok_or_else(|| unknown(&id))??, false)))
    })
    .await
}

/// An item of a conversation.
pub async fn item(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    ids: ItemId,
) -> Result<Json<Value>, ApiError> {
    let Path((id, item_id)) = ids?;
    let mut items = found(&app, &tenant, &id)?.items.into_iter();
    let found = items.find(|item| id_of(item).as_ref() == Some(&item_id));
    found.map(Json).ok_or_else(|| unknown_item(&item_id))
}

/// Removes an item of a conversation.
pub async fn delete_item(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    ids: ItemId,
) -> Result<Json<ConversationObject>, ApiError> {
    let Path((id, item_id)) = ids?;
    let change = |conversation: &mut Conversation| {
        let before = conversation.items.len();
        conversation.items.retain(|item| id_of(item).as_ref() != Some(&item_id));
        (conversation.items.len() < before).then(|| object(conversation))
    };
    let changed = app.responses.change_conversation(&tenant, &id, change).ok_or_else(|| unknown(&id))?;
    changed.map(Json).ok_or_else(|| unknown_item(&item_id))
}

fn append(conversation: &mut Conversation, items: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    if !conversation.has_room(items.len()) {
        let message = format!("a conversation has at most {ITEMS_MAX} items and 32 MiB");
        return Err(ApiError::invalid("items", message));
    }
    Ok(conversation.append(items))
}

fn object(conversation: &Conversation) -> ConversationObject {
    let Conversation { id, created_at, metadata, .. } = conversation.clone();
    ConversationObject { id, object: "conversation", created_at, metadata }
}

fn found(app: &App, tenant: &str, id: &str) -> Result<Conversation, ApiError> {
    app.responses.conversation(tenant, id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("no conversation has the id `{id}`"))
}

fn unknown_item(id: &str) -> ApiError {
    ApiError::not_found(format!("no item of this conversation has the id `{id}`"))
}
