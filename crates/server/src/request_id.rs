//! Every request has an id, the client's where it is sane, and every response says it.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use uuid::Uuid;

/// The header's name.
pub const HEADER: &str = "x-request-id";
/// Longest id a client may choose, in bytes.
const BYTES_MAX: usize = 128;

/// The id of an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(pub String);

/// Gives a request its id.
pub async fn layer(mut request: Request, next: Next) -> Response {
    let theirs = request.headers().get(HEADER).and_then(|value| value.to_str().ok()).filter(|id| sane(id));
    let id = theirs.map_or_else(|| format!("req-{}", Uuid::new_v4().simple()), str::to_owned);
    let header = HeaderValue::from_str(&id);
    request.extensions_mut().insert(RequestId(id));
    let mut response = next.run(request).await;
    if let Ok(value) = header {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

fn sane(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    !id.is_empty() && id.len() <= BYTES_MAX && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_plain() {
        assert!(sane("req-1.a:B_2"));
        assert!(!sane(""));
        assert!(!sane("a b"));
        assert!(!sane("a\"b"));
        assert!(!sane(&"a".repeat(129)));
    }
}
