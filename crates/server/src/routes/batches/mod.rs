//! `/v1/batches`; `anthropic` has `/v1/messages/batches`.

pub mod anthropic;

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::{Extension, Json};
use omnibus_batches::{Format, NewBatch, Purpose, StoreError};

use super::listed;
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::batches::{failed, now};
use crate::error::ApiError;
use crate::wire::batches::{BatchObject, BatchQuery, CreateBatch};
use crate::wire::stored_files::ObjectList;

type Id = Result<Path<String>, PathRejection>;

/// Makes a batch of a file.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    request: Request,
) -> Result<Json<BatchObject>, ApiError> {
    app.batches()?;
    let body = app.bodies.json(request).await?;
    blocking(move || {
        let CreateBatch { input, endpoint, window, window_seconds, metadata, output_expires_after } =
            CreateBatch::read(body.parse()?.0)?;
        let batches = app.batches()?;
        let file = batches.store.file(&tenant, &input).map_err(|error| of_input(error, &input))?;
        if file.purpose != Purpose::Batch {
            let message = format!("the file `{input}` has results and no requests");
            return Err(ApiError::invalid("input_file_id", message));
        }
        let created_at = now();
        let request = NewBatch {
            format: Format::OpenAi,
            input,
            endpoint,
            completion_window: window,
            created_at,
            expires_at: created_at.saturating_add(window_seconds),
            output_expires_after,
            total: 0,
            metadata,
        };
        batches.create(&tenant, request).map(|batch| Json(batch.into()))
    })
    .await
}

/// The batches, newest first.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    query: Result<Query<BatchQuery>, QueryRejection>,
) -> Result<Json<ObjectList<BatchObject>>, ApiError> {
    let Query(BatchQuery { limit, after }) = query.map_err(listed::unreadable)?;
    let batches = app.batches()?.store.batches(&tenant, Format::OpenAi);
    let batches = listed::behind(batches, |batch| &batch.id, ("after", after.as_deref()))?;
    let (batches, has_more) = listed::first(batches, listed::limit(limit, 20, 100)?);
    let data: Vec<BatchObject> = batches.into_iter().map(BatchObject::from).collect();
    let id = |batch: Option<&BatchObject>| batch.map(|batch| batch.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Ok(Json(ObjectList { object: "list", data, first_id, last_id, has_more }))
}

/// A batch.
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<BatchObject>, ApiError> {
    let Path(id) = id?;
    let found = app.batches()?.store.batch(&tenant, Format::OpenAi, &id);
    found.map(|batch| Json(batch.into())).map_err(|error| of_batch(error, &id))
}

/// Begins to cancel a batch.
pub async fn cancel(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<BatchObject>, ApiError> {
    let Path(id) = id?;
    blocking(move || {
        let batches = app.batches()?;
        batches.store.batch(&tenant, Format::OpenAi, &id).map_err(|error| of_batch(error, &id))?;
        batches.cancel(&tenant, Format::OpenAi, &id).map(|batch| Json(batch.into()))
    })
    .await
}

fn of_input(error: StoreError, id: &str) -> ApiError {
    match error {
        StoreError::NotFound(_) => {
            ApiError::unknown_object("input_file_id", format!("no file has the id `{id}`"))
        }
        other => failed(other),
    }
}

fn of_batch(error: StoreError, id: &str) -> ApiError {
    match error {
        StoreError::NotFound(_) => ApiError::not_found(format!("no batch has the id `{id}`")),
        other => failed(other),
    }
}
