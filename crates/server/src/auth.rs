//! Authenticates requests by API key.
//!
//! Invariant: keys are never logged.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::keys::{Key, Keys, Levels};

/// Routes open without a key.
const OPEN: &[&str] = &["/health", "/ready"];

/// The tenant of a request: the name of its key. Empty when no keys are configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenant(pub String);

/// The headers with what is left of a key's limits, on the routes below a path.
#[derive(Debug, Clone, Copy)]
pub struct LimitHeaders {
    /// The prefix of the routes' paths.
    pub path: &'static str,
    /// Names and values.
    pub of: fn(&Levels) -> Vec<(&'static str, String)>,
}

/// Accepted keys, and the headers of their limits.
#[derive(Debug, Clone)]
pub struct Authentication {
    /// The keys.
    pub keys: Keys,
    /// The headers of the longest path that is a prefix of the request's are used.
    pub headers: &'static [LimitHeaders],
}

/// Authenticates a request and attaches its [`Key`] and [`Tenant`]; answers 401 otherwise.
pub async fn layer(State(auth): State<Authentication>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let Some(key) = auth.keys.find(presented(request.headers())) else {
        if !OPEN.contains(&path) && !is_page_file(path) {
            return ApiError::unauthorized().into_response();
        }
        request.extensions_mut().insert(Tenant::default());
        return next.run(request).await;
    };
    let applicable = auth.headers.iter().filter(|headers| path.starts_with(headers.path));
    let headers = applicable.max_by_key(|headers| headers.path.len());
    let extensions = request.extensions_mut();
    extensions.insert(Tenant(key.name.clone()));
    extensions.insert(Arc::clone(&key));
    let mut response = next.run(request).await;
    for (name, value) in headers.map(|headers| (headers.of)(&key.levels())).unwrap_or_default() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// Answers 403 to keys that may not use a route of administrators.
pub async fn admin_only(request: Request, next: Next) -> Response {
    let key = request.extensions().get::<Arc<Key>>();
    match key.map(|key| key.check_admin()) {
        Some(Ok(())) => next.run(request).await,
        Some(Err(error)) => error.into_response(),
        None => ApiError::unauthorized().into_response(),
    }
}

/// Browsers open the page without a key, and send one with each of its calls.
fn is_page_file(path: &str) -> bool {
    path == "/ui" || path.strip_prefix("/ui/").is_some_and(|name| omnibus_page::file(name).is_some())
}

/// The presented key: a bearer token (OpenAI), or `x-api-key` (Anthropic).
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}
