//! Limits on request bodies: size, time and content type.
//!
//! Invariant: a limit is checked before memory is allocated for the limited data.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::error::ApiError;

/// Limits on one HTTP request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body_bytes: usize,
    /// Longest time for a body to arrive.
    pub body_timeout: Duration,
    /// Longest time for the request line and headers to arrive.
    pub header_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            body_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(30),
        }
    }
}

/// Most bytes of a too large body that are read and discarded, so that the client gets to read the response.
const DISCARD_BYTES_MAX: usize = 256 << 20;
/// Longest time spent on discarding.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// The JSON body of a request, not parsed yet.
pub async fn json_body(request: Request, limits: &Limits) -> Result<Bytes, ApiError> {
    check_headers(request.headers())?;
    body(request, limits).await
}

/// The body of a form, and the boundary of its parts.
pub async fn form_body(request: Request, limits: &Limits) -> Result<(Bytes, String), ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|_| {
        ApiError::unsupported_media("the header `content-type` must be `multipart/form-data` with a boundary")
    })?;
    Ok((body(request, limits).await?, boundary))
}

async fn body(request: Request, limits: &Limits) -> Result<Bytes, ApiError> {
    let (head, body) = request.into_parts();
    let too_large = || ApiError::too_large(format!("the body must be at most {} bytes", limits.body_bytes));
    let declared =
        head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > limits.body_bytes as u64) {
        discard(body, &head.headers).await;
        return Err(too_large());
    }
    let read = tokio::time::timeout(limits.body_timeout, read(body, limits.body_bytes)).await;
    match read.map_err(|_| ApiError::body_timeout(limits.body_timeout.as_secs()))?? {
        Read::All(bytes) => Ok(bytes),
        Read::TooLarge(rest) => {
            discard(rest, &head.headers).await;
            Err(too_large())
        }
    }
}

/// Requires JSON: a browser can send forms cross-origin without a preflight, but not JSON.
fn check_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !kind.ends_with("+json") {
        return Err(ApiError::unsupported_media("the header `content-type` must be `application/json`"));
    }
    match headers.get(CONTENT_ENCODING) {
        Some(coding) if coding != "identity" => {
            Err(ApiError::unsupported_media("the header `content-encoding` must be absent: send plain JSON"))
        }
        _ => Ok(()),
    }
}

enum Read {
    All(Bytes),
    TooLarge(Body),
}

async fn read(mut body: Body, most: usize) -> Result<Read, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::malformed(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Ok(Read::TooLarge(body));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Read::All(bytes.freeze()))
}

/// Reads and drops the rest of a body: most clients read the response only after they sent everything. A client that
/// sent `Expect: 100-continue` has sent nothing yet.
async fn discard(mut body: Body, headers: &HeaderMap) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let everything = async {
        let mut discarded = 0;
        while discarded < DISCARD_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            discarded += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    _ = tokio::time::timeout(DISCARD_TIMEOUT, everything).await;
}
