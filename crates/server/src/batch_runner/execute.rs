//! Runs one request of a batch, as if a client had sent it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use futures::FutureExt;
use omnibus_batches::{Answer, Line, Unanswered};
use omnibus_engine::Class;
use serde_json::Value;
use tower::ServiceExt;

use crate::auth::Tenant;
use crate::request_id;

/// Longest pause before a request that the server had no room for is sent again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Shortest.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The answer to a line of a tenant's batch. One that there is no room for is sent again.
pub async fn answer(router: Router, tenant: Tenant, line: Line) -> Answer {
    let body = line.body.to_string();
    loop {
        let response = router.clone().oneshot(request(&line.url, &body, &tenant));
        let answered =
            AssertUnwindSafe(async { read(response.await.unwrap_or_else(|never| match never {})).await });
        match answered.catch_unwind().await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(pause)) => tokio::time::sleep(pause.clamp(PAUSE_MIN, PAUSE_MAX)).await,
            Err(_) => {
                tracing::error!(custom_id = line.custom_id, "the handler of a line panicked");
                let message = "the server failed on this request; this is a bug";
                return Answer::None(Unanswered::Failed(message.to_owned()));
            }
        }
    }
}

fn request(url: &str, body: &str, tenant: &Tenant) -> Request {
    let mut request = Request::new(Body::from(body.to_owned()));
    *request.method_mut() = Method::POST;
    // The path of a line is one of a list.
    *request.uri_mut() = url.parse().unwrap_or_default();
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, body.len().into());
    request.extensions_mut().insert(tenant.clone());
    request.extensions_mut().insert(Class::Offline);
    request
}

/// Reads a response; the pause before the request is sent again, where it may pass later.
async fn read(response: Response) -> Result<Answer, Duration> {
    let status = response.status().as_u16();
    if matches!(status, 429 | 503) {
        return Err(pause(response.headers()));
    }
    let header = response.headers().get(request_id::HEADER).and_then(|value| value.to_str().ok());
    let request_id = header.unwrap_or_default().to_owned();
    Ok(match to_bytes(response.into_body(), usize::MAX).await {
        Ok(bytes) => {
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
            Answer::Response { status, request_id, body }
        }
        Err(error) => Answer::None(Unanswered::Failed(error.to_string())),
    })
}

fn pause(headers: &HeaderMap) -> Duration {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let millis = number("retry-after-ms").map(Duration::from_millis);
    let seconds = || number(RETRY_AFTER.as_str()).map(Duration::from_secs);
    millis.or_else(seconds).unwrap_or(Duration::from_secs(1))
}
