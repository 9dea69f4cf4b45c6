//! The page of the server: `GET /ui` and its files, `POST /ui/chat`, and what it shows of the settings.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use axum::http::header::{LOCATION, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, body::Body};
use omnibus_page::File;
use serde_json::{Value, json};

use super::chat::lowered;
use super::page_approvals;
use crate::api::{Api, Prepared, RequestContext, generate};
use crate::app::App;
use crate::error::ApiError;
use crate::response::Delivery;
use crate::response::page::PageFramer;
use crate::wire::chat::ChatRequest;

/// Leads to the page, whose files are named relative to `/ui/`.
pub async fn redirect(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    shown(&app)?;
    // Relative: a proxy may have put a prefix before it.
    Ok((StatusCode::PERMANENT_REDIRECT, [(LOCATION, "ui/")]).into_response())
}

/// The page.
pub async fn index(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, ApiError> {
    shown(&app)?;
    omnibus_page::file("").map(|file| respond(file, &headers)).ok_or_else(|| unknown(""))
}

/// A file of the page.
pub async fn file(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    shown(&app)?;
    omnibus_page::file(&name).map(|file| respond(file, &headers)).ok_or_else(|| unknown(&name))
}

fn unknown(name: &str) -> ApiError {
    ApiError::not_found(format!("the page has no file `{name}`"))
}

/// Fails where the page is switched off.
fn shown(app: &App) -> Result<&Value, ApiError> {
    let off = || ApiError::not_found("this server was started with --ui off");
    app.page_settings.as_deref().ok_or_else(off)
}

fn respond(file: &'static File, headers: &HeaderMap) -> Response {
    let known = headers.get(IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == file.etag.as_bytes());
    let (status, body) = match known {
        true => (StatusCode::NOT_MODIFIED, Body::empty()),
        false => (StatusCode::OK, Body::from(file.bytes)),
    };
    let headers = [
        (CONTENT_TYPE, file.content_type),
        (ETAG, file.etag),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, omnibus_page::CONTENT_SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (status, headers, body).into_response()
}

/// Every setting with its value and where that comes from, without secrets.
pub async fn settings(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let settings = shown(&app)?;
    Ok(Json(json!({"version": env!("CARGO_PKG_VERSION"), "settings": settings})))
}

/// A chat whose answer comes as text and as HTML.
pub async fn chat(app: State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    shown(&app)?;
    generate::<PageApi>(app, request).await
}

/// Chat completions, framed for the page.
struct PageApi;

impl Api for PageApi {
    const NAME: &'static str = "page";
    const ID_PREFIX: &'static str = "page-";
    const INPUT_FIELD: &'static str = "messages";
    type Framer = PageFramer;

    fn prepare(mut body: Value, context: &RequestContext<'_>) -> Result<Prepared<PageFramer>, ApiError> {
        let approved = page_approvals::take(&mut body, context)?;
        let (batch, server_loop) = lowered(ChatRequest::read(body)?, Some(approved), context)?;
        if batch.n != 1 {
            return Err(ApiError::unsupported("n", "the page shows one answer; branch for another"));
        }
        let framer = PageFramer::new(context.header(&batch));
        Ok(Prepared { batch, framer, delivery: Delivery::Stream, server_loop })
    }
}
