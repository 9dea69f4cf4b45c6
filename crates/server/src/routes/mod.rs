//! The routes.

mod adapters;
mod apply_template;
mod audio;
mod batches;
mod chat;
mod completions;
mod decisions;
mod files;
mod gateways;
mod infill;
mod kv;
mod listed;
mod live;
mod mcp;
mod messages;
mod models;
mod ollama;
mod owner;
mod page;
mod page_approvals;
mod pooling;
mod requests;
mod responses;
mod sessions;
mod status;
mod stream;
mod table;
mod tokenize;
mod usage;

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};

use crate::app::App;
use crate::auth::{Authentication, LimitHeaders};
use crate::error::{ApiError, ErrorFormat, ErrorKind};
use crate::openapi::Operation;
use crate::request_id::RequestId;
use crate::response::{self, JsonBody, anthropic, openai};
use crate::{access, auth, error, metrics, openapi, records, request_id, traces};
use status::OpenApiDocument;
pub use table::ROUTES;

/// The error format of each API, by the path of its routes.
pub const ERROR_FORMATS: &[ErrorFormat] = &[
    error_format("/", |error, _| openai::error_body(error)),
    error_format("/v1/messages", anthropic::error_body),
    error_format("/messages", anthropic::error_body),
    error_format("/api/", |error, _| response::ollama::error_body(error)),
    ErrorFormat { path: "/v1/systemone", ..SYSTEM_ONE_ERRORS },
    SYSTEM_ONE_ERRORS,
];

const SYSTEM_ONE_ERRORS: ErrorFormat = ErrorFormat {
    path: "/systemone",
    render: |error, _| response::decisions::systemone::error_body(error),
    status: response::decisions::systemone::status,
};

/// A format with the usual statuses.
const fn error_format(path: &'static str, render: fn(&ApiError, &RequestId) -> JsonBody) -> ErrorFormat {
    ErrorFormat { path, render, status: ErrorKind::status }
}

/// The headers with what is left of a key's limits, by the path of the routes.
const LIMIT_HEADERS: &[LimitHeaders] = &[
    LimitHeaders { path: "/", of: openai::limit_headers },
    LimitHeaders { path: "/v1/messages", of: anthropic::limit_headers },
    LimitHeaders { path: "/messages", of: anthropic::limit_headers },
];

/// The router of all routes.
pub fn router(app: Arc<App>) -> Router {
    let document = OpenApiDocument(Arc::new(openapi::document(ROUTES, &app.root_path)));
    let authentication = Authentication { keys: app.keys.clone(), headers: LIMIT_HEADERS };
    paths()
        .fold(Router::new(), |router, (path, route)| router.route(path, route.method_router()))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_route)
        .layer(Extension(document))
        .layer(from_fn_with_state(authentication, auth::layer))
        .layer(access::cors(app.access.origins.clone()))
        .layer(from_fn_with_state(app.access.clone(), access::layer))
        .layer(from_fn_with_state(ERROR_FORMATS, error::render))
        .layer(from_fn_with_state(app.records.clone(), records::layer))
        .layer(from_fn_with_state(app.traces.clone(), traces::layer))
        .layer(from_fn(metrics::layer))
        .layer(from_fn(request_id::layer))
        .with_state(app)
}

/// Every path with its route.
pub fn paths() -> impl Iterator<Item = (&'static str, &'static Operation)> {
    ROUTES.iter().flat_map(|route| {
        std::iter::once(route.path).chain(unversioned(route.path)).map(move |path| (path, route))
    })
}

/// The path without its version, as clients use whose base URL has none, unless another route has it.
fn unversioned(path: &'static str) -> Option<&'static str> {
    path.strip_prefix("/v1").filter(|rest| ROUTES.iter().all(|route| route.path != *rest))
}

async fn no_route(request: Request) -> ApiError {
    ApiError::not_found(format!("there is no route {} {}", request.method(), request.uri().path()))
}

async fn wrong_method(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::method_not_allowed(format!("the route {path} has no method {method}"))
}
