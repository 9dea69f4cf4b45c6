//! `/v1/messages/batches`.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::response::Response;
use axum::{Extension, Json};
use omnibus_batches::{Batch, Format, NewBatch, NewFile, Purpose, Upload};

use super::{Id, of_batch};
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::batches::{LINES_MAX, failed, now};
use crate::error::ApiError;
use crate::routes::{files, listed};
use crate::wire::batches::anthropic::{
    DeletedMessageBatch, ENDPOINT, MessageBatch, MessageBatchList, MessageBatchQuery, read_lines,
};

/// Seconds that a batch may take.
const WINDOW: u64 = 24 * 3600;
/// Seconds that its results are kept.
const RESULTS_KEPT: u64 = 29 * 24 * 3600;

/// Makes a batch of requests.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    request: Request,
) -> Result<Json<MessageBatch>, ApiError> {
    app.batches()?;
    let body = app.bodies.json(request).await?;
    blocking(move || {
        let (body, _reading) = body.parse()?;
        let lines = read_lines(body, LINES_MAX)?;
        let batches = app.batches()?;
        batches.store.check_room_for_file().map_err(failed)?;
        let (created_at, total) = (now(), lines.len());
        let mut upload = Upload::begin(&batches.store).map_err(failed)?;
        lines.into_iter().try_for_each(|line| upload.write(line.as_bytes())).map_err(failed)?;
        let file = upload.finish(NewFile {
            tenant: tenant.clone(),
            filename: "requests.jsonl".to_owned(),
            purpose: Purpose::Internal,
            created_at,
            expires_at: Some(created_at.saturating_add(WINDOW + RESULTS_KEPT)),
        });
        let request = NewBatch {
            format: Format::Anthropic,
            input: file.map_err(failed)?.id,
            endpoint: ENDPOINT.to_owned(),
            completion_window: "24h".to_owned(),
            created_at,
            expires_at: created_at.saturating_add(WINDOW),
            output_expires_after: RESULTS_KEPT,
            total,
            metadata: None,
        };
        batches.create(&tenant, request).map(|batch| Json(batch.into()))
    })
    .await
}

/// The batches, newest first.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    query: Result<Query<MessageBatchQuery>, QueryRejection>,
) -> Result<Json<MessageBatchList>, ApiError> {
    let Query(MessageBatchQuery { limit, before_id, after_id }) = query.map_err(listed::unreadable)?;
    let limit = listed::limit(limit, 20, 1000)?;
    let mut batches = app.batches()?.store.batches(&tenant, Format::Anthropic);
    let (batches, has_more) = match before_id {
        Some(before) => {
            // Its neighbours come first: the list is read from its other end.
            batches.reverse();
            let newer = listed::behind(batches, |batch| &batch.id, ("before_id", Some(&before)))?;
            let (mut newer, has_more) = listed::first(newer, limit);
            newer.reverse();
            (newer, has_more)
        }
        None => {
            let older = listed::behind(batches, |batch| &batch.id, ("after_id", after_id.as_deref()))?;
            listed::first(older, limit)
        }
    };
    let data: Vec<MessageBatch> = batches.into_iter().map(MessageBatch::from).collect();
    let id = |batch: Option<&MessageBatch>| batch.map(|batch| batch.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Ok(Json(MessageBatchList { data, has_more, first_id, last_id }))
}

fn found(app: &App, tenant: &str, id: &str) -> Result<Batch, ApiError> {
    app.batches()?.store.batch(tenant, Format::Anthropic, id).map_err(|error| of_batch(error, id))
}

/// A batch.
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<MessageBatch>, ApiError> {
    let Path(id) = id?;
    found(&app, &tenant, &id).map(|batch| Json(batch.into()))
}

/// Begins to cancel a batch.
pub async fn cancel(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<MessageBatch>, ApiError> {
    let Path(id) = id?;
    blocking(move || {
        found(&app, &tenant, &id)?;
        app.batches()?.cancel(&tenant, Format::Anthropic, &id).map(|batch| Json(batch.into()))
    })
    .await
}

/// Removes a batch that has ended, with its results.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
) -> Result<Json<DeletedMessageBatch>, ApiError> {
    let Path(id) = id?;
    blocking(move || {
        found(&app, &tenant, &id)?;
        app.batches()?.store.remove_batch(&tenant, Format::Anthropic, &id).map_err(failed)?;
        Ok(Json(DeletedMessageBatch { id, kind: "message_batch_deleted" }))
    })
    .await
}

/// The results of a batch that has ended, one a line.
pub async fn results(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    let Path(id) = id?;
    let batch = found(&app, &tenant, &id)?;
    if !batch.status.is_end() {
        let message = format!("the batch `{id}` has not ended: it has no results yet");
        return Err(ApiError::conflict(message));
    }
    let path = app.batches()?.store.results(&batch);
    let path =
        path.ok_or_else(|| ApiError::not_found(format!("the results of `{id}` are not kept any more")))?;
    Ok(files::bytes_of(path, request).await)
}
