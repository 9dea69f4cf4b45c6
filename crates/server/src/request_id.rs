//! The id of an HTTP request: the client's `x-request-id` when valid, else a new one; sent back in every response.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;
use uuid::Uuid;

/// Name of the header.
pub const HEADER: &str = "x-request-id";
/// Its name in Anthropic's API, whose clients show no other.
const ANTHROPIC_HEADER: &str = "request-id";
/// Digits of an id that a client did not choose.
const SHORT_DIGITS: usize = 12;
/// Longest id accepted from a client, in bytes.
const BYTES_MAX: usize = 128;

/// The id of an HTTP request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestId(pub String);

/// Assigns an id to each request. Log lines of the request are in a span with the id.
pub async fn layer(mut request: Request, next: Next) -> Response {
    let theirs =
        request.headers().get(HEADER).and_then(|value| value.to_str().ok()).filter(|id| is_valid(id));
    let id = theirs.map_or_else(short_id, str::to_owned);
    let header = HeaderValue::from_str(&id);
    let span = tracing::info_span!("request", request_id = id);
    request.extensions_mut().insert(RequestId(id));
    let mut response = next.run(request).instrument(span).await;
    if let Ok(value) = header {
        response.headers_mut().insert(ANTHROPIC_HEADER, value.clone());
        response.headers_mut().insert(HEADER, value);
    }
    response
}

/// Short enough to be read aloud, and unique among the requests of years.
fn short_id() -> String {
    let id = Uuid::new_v4().simple().to_string();
    format!("req-{}", id.get(..SHORT_DIGITS).unwrap_or(&id))
}

fn is_valid(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    !id.is_empty() && id.len() <= BYTES_MAX && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_plain_ascii() {
        assert!(is_valid(&short_id()) && short_id().len() == 16 && short_id() != short_id());
        assert!(is_valid("req-1.a:B_2"));
        assert!(!is_valid(""));
        assert!(!is_valid("a b"));
        assert!(!is_valid("a\"b"));
        assert!(!is_valid(&"a".repeat(129)));
    }
}
