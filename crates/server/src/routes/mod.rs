//! The routes.

mod adapters;
mod audio;
mod chat;
mod completions;
mod messages;
mod models;
mod requests;
mod responses;
mod sessions;
mod status;
mod stream;
mod tokenize;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post};

use crate::api::generate;
use crate::app::App;
use crate::error::{ApiError, ErrorFormat};
use crate::response::{anthropic, openai};
use crate::{auth, error, metrics, request_id};

/// The error format of each API, by the path of its routes.
const ERROR_FORMATS: &[ErrorFormat] = &[
    ErrorFormat { path: "/", render: openai::error_body },
    ErrorFormat { path: "/v1/messages", render: anthropic::error_body },
];

/// The router of all routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(generate::<chat::ChatApi>))
        .route("/v1/completions", post(generate::<completions::CompletionsApi>))
        .route("/v1/messages", post(generate::<messages::MessagesApi>))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/responses", post(generate::<responses::ResponsesApi>))
        .route("/v1/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/stream", get(stream::connect))
        .route("/v1/audio/transcriptions", post(audio::transcriptions))
        .route("/v1/audio/translations", post(audio::translations))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/load_lora_adapter", post(adapters::load))
        .route("/v1/unload_lora_adapter", post(adapters::unload))
        .route("/v1/requests", get(requests::list))
        .route("/v1/requests/{id}", delete(requests::cancel))
        .route("/v1/sessions", get(sessions::list))
        .route("/v1/sessions/{id}", delete(sessions::delete))
        .route("/v1/cache/stats", get(sessions::cache_stats))
        .route("/v1/status", get(status::status))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/openapi.json", get(status::openapi))
        .route("/version", get(status::version))
        .route("/", get(status::version))
        .route("/api/hello", get(status::version))
        .route("/metrics", get(status::metrics))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_route)
        .layer(from_fn_with_state(app.keys.clone(), auth::layer))
        .layer(from_fn_with_state(ERROR_FORMATS, error::render))
        .layer(from_fn(metrics::layer))
        .layer(from_fn(request_id::layer))
        .with_state(app)
}

async fn no_route(request: Request) -> ApiError {
    ApiError::not_found(format!("there is no route {} {}", request.method(), request.uri().path()))
}

async fn wrong_method(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::method_not_allowed(format!("the route {path} has no method {method}"))
}
