//! `/v1/files`: files of requests and of results.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::{Extension, Json};
use bytes::{Bytes, BytesMut};
use multer::Multipart;
use omnibus_batches::{NewFile, Purpose, Store, StoreError, Upload};
use tokio::time::timeout;
use tower::ServiceExt;
use tower_http::services::ServeFile;

use super::listed;
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::batches::{FILE_BYTES_MAX, failed, now};
use crate::error::ApiError;
use crate::wire::form::{FormFields, malformed, part_name};
use crate::wire::stored_files::{
    DeletedFile, FileObject, FileQuery, ObjectList, PurposeName, UPLOAD, UploadFields,
};

/// Longest time for a file to arrive.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest time spent on the rest of a form that was refused.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are written at a time.
const WRITTEN_BYTES: usize = 1 << 20;
/// Most bytes of a field that is not the file.
const FIELD_BYTES_MAX: usize = 1024;
/// Most fields.
const FIELDS_MAX: usize = 16;
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;
/// What a form has beside its file.
const FORM_BYTES: u64 = 64 << 10;

/// Receives a file.
pub async fn upload(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    request: Request,
) -> Result<Json<FileObject>, ApiError> {
    let batches = app.batches()?;
    let _place = batches.upload_place()?;
    batches.store.check_room_for_file().map_err(failed)?;
    let mut form = app.bodies.form_stream(request, FILE_BYTES_MAX + FORM_BYTES).await?;
    let late = || Err(ApiError::body_timeout(UPLOAD_TIMEOUT.as_secs()));
    let received =
        timeout(UPLOAD_TIMEOUT, received(&mut form, &batches.store)).await.unwrap_or_else(|_| late());
    let Received { file, fields } = match received {
        Ok(received) => received,
        Err(error) => {
            // Most clients read the response only after they sent everything.
            let rest = async { while let Ok(Some(_)) = form.next_field().await {} };
            _ = timeout(DISCARD_TIMEOUT, rest).await;
            return Err(error);
        }
    };
    let UploadFields { expires_after } = UploadFields::read(fields)?;
    let (upload, filename) = file.ok_or_else(|| ApiError::invalid("file", "`file` is missing"))?;
    if upload.bytes() == 0 {
        return Err(ApiError::invalid("file", "`file` is empty"));
    }
    let created_at = now();
    let expires_at = Some(created_at.saturating_add(expires_after));
    let new = NewFile { tenant, filename, purpose: Purpose::Batch, created_at, expires_at };
    blocking(move || upload.finish(new).map_err(failed)).await.map(|file| Json(file.into()))
}

/// A form whose file is stored already, but for its name.
#[derive(Default)]
struct Received {
    file: Option<(Upload, String)>,
    fields: FormFields,
}

async fn received(form: &mut Multipart<'static>, store: &Arc<Store>) -> Result<Received, ApiError> {
    let (mut received, mut count) = (Received::default(), 0);
    while let Some(mut part) = form.next_field().await.map_err(malformed)? {
        count += 1;
        if count > FIELDS_MAX {
            return Err(ApiError::malformed(format!("a form has at most {FIELDS_MAX} fields")));
        }
        let name = part_name(&part)?;
        if name != "file" {
            let value = small(&name, &mut part).await?;
            received.fields.insert(name, value, UPLOAD)?;
            continue;
        }
        if received.file.is_some() {
            return Err(ApiError::invalid("file", "`file` is there more than once"));
        }
        let filename = part.file_name().unwrap_or("file.jsonl").to_owned();
        if filename.len() > NAME_BYTES_MAX {
            let message = format!("the name of `file` must be at most {NAME_BYTES_MAX} bytes");
            return Err(ApiError::invalid("file", message));
        }
        received.file = Some((stored(&mut part, store).await?, filename));
    }
    Ok(received)
}

/// The value of a field that is not the file.
async fn small(name: &str, part: &mut multer::Field<'static>) -> Result<Bytes, ApiError> {
    let mut value = BytesMut::new();
    while let Some(chunk) = part.chunk().await.map_err(malformed)? {
        if value.len() + chunk.len() > FIELD_BYTES_MAX {
            let message = format!("`{name}` must be at most {FIELD_BYTES_MAX} bytes");
            return Err(ApiError::invalid(name, message));
        }
        value.extend_from_slice(&chunk);
    }
    Ok(value.freeze())
}

/// Writes a file as it arrives.
async fn stored(part: &mut multer::Field<'static>, store: &Arc<Store>) -> Result<Upload, ApiError> {
    let store = Arc::clone(store);
    let mut upload = blocking(move || Upload::begin(&store).map_err(failed)).await?;
    let mut buffer = BytesMut::new();
    loop {
        let chunk = part.chunk().await.map_err(malformed)?;
        let is_last = chunk.is_none();
        buffer.extend_from_slice(&chunk.unwrap_or_default());
        if upload.bytes() + buffer.len() as u64 > FILE_BYTES_MAX {
            return Err(ApiError::too_large(format!("`file` must be at most {FILE_BYTES_MAX} bytes")));
        }
        if is_last || buffer.len() >= WRITTEN_BYTES {
            let bytes = buffer.split();
            let written = move || upload.write(&bytes).map(|()| upload).map_err(of_upload);
            upload = blocking(written).await?;
        }
        if is_last {
            return Ok(upload);
        }
    }
}

/// A disk without room for a file is the file's problem, and not the server's.
fn of_upload(error: StoreError) -> ApiError {
    match &error {
        StoreError::Io(of) if of.kind() == std::io::ErrorKind::StorageFull => {
            ApiError::too_large("the server's disk has no room for this file").with_code("storage_full")
        }
        _ => failed(error),
    }
}

/// The files.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    query: Result<Query<FileQuery>, QueryRejection>,
) -> Result<Json<ObjectList<FileObject>>, ApiError> {
    let Query(FileQuery { purpose, limit, order, after }) = query.map_err(listed::unreadable)?;
    let mut files = app.batches()?.store.files(&tenant);
    files.retain(|file| purpose.as_deref().is_none_or(|purpose| file.purpose.name() == purpose));
    match order.as_deref() {
        None | Some("desc") => {}
        Some("asc") => files.reverse(),
        Some(other) => {
            return Err(ApiError::invalid("order", format!("`order` must be asc or desc, not `{other}`")));
        }
    }
    let files = listed::behind(files, |file| &file.id, ("after", after.as_deref()))?;
    let (files, has_more) = listed::first(files, listed::limit(limit, 10_000, 10_000)?);
    let data: Vec<FileObject> = files.into_iter().map(FileObject::from).collect();
    let id = |file: Option<&FileObject>| file.map(|file| file.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Ok(Json(ObjectList { object: "list", data, first_id, last_id, has_more }))
}

/// What is known of a file.
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<FileObject>, ApiError> {
    let Path(id) = id?;
    app.batches()?.store.file(&tenant, &id).map(|file| Json(file.into())).map_err(|error| of_file(error, &id))
}

/// Removes a file.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<DeletedFile>, ApiError> {
    let Path(id) = id?;
    let store = Arc::clone(&app.batches()?.store);
    blocking(move || {
        store.remove_file(&tenant, &id).map_err(|error| of_file(error, &id))?;
        Ok(Json(DeletedFile { id, object: "file", deleted: true }))
    })
    .await
}

/// The bytes of a file, or a range of them.
pub async fn content(
    State(app): State<Arc<App>>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let Path(id) = id?;
    let store = &app.batches()?.store;
    let file = store.file(&tenant, &id).map_err(|error| of_file(error, &id))?;
    Ok(bytes_of(store.data(&file), request).await)
}

/// The bytes of a file of JSON lines, or the range that a request names.
pub async fn bytes_of(path: PathBuf, request: Request) -> Response {
    let served = ServeFile::new(path).oneshot(request).await.unwrap_or_else(|never| match never {});
    let mut response = served.map(Body::new);
    if response.status().is_success() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    }
    response
}

fn of_file(error: StoreError, id: &str) -> ApiError {
    match error {
        StoreError::NotFound(_) => ApiError::not_found(format!("no file has the id `{id}`")),
        other => failed(other),
    }
}
