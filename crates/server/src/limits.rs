//! Limits on request bodies: size, time and content type.
//!
//! Invariant: a limit is checked before memory is allocated for the limited data.

use std::ops::Deref;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use omnibus_engine::{ByteBudget, Reserved};

use crate::error::ApiError;

/// Limits on HTTP requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body_bytes: usize,
    /// Most bytes of all bodies that are being received or read. At least one largest body has room.
    pub all_bodies_bytes: usize,
    /// Longest time for a body to arrive.
    pub body_timeout: Duration,
    /// Longest time for the request line and headers to arrive.
    pub header_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            all_bodies_bytes: 1 << 30,
            body_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(30),
        }
    }
}

/// Most bytes of a too large body that are read and discarded, so that the client gets to read the response.
const DISCARD_BYTES_MAX: usize = 256 << 20;
/// Longest time spent on discarding.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives bodies within limits.
#[derive(Debug)]
pub struct Bodies {
    limits: Limits,
    /// Of all bodies.
    budget: ByteBudget,
}

/// A body, which counts towards the budget until it is dropped.
#[derive(Debug)]
pub struct ReceivedBody {
    bytes: Bytes,
    reserved: Reserved,
}

impl Deref for ReceivedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// Within these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, budget: ByteBudget::new(limits.all_bodies_bytes.max(limits.body_bytes) as u64) }
    }

    /// Largest body, in bytes.
    pub fn most_bytes(&self) -> usize {
        self.limits.body_bytes
    }

    /// What a message that has arrived takes of the budget while it is read.
    pub fn message(&self, bytes: usize) -> Result<Reserved, ApiError> {
        self.budget.reserve(bytes as u64).ok_or_else(over_budget)
    }

    /// The JSON body of a request, not parsed yet.
    pub async fn json(&self, request: Request) -> Result<ReceivedBody, ApiError> {
        check_type(request.headers())?;
        self.untyped_json(request).await
    }

    /// A JSON body whatever its type says, for an API whose clients send none. A browser's page cannot use it for more than
    /// it may: its origin was checked.
    pub async fn untyped_json(&self, request: Request) -> Result<ReceivedBody, ApiError> {
        check_coding(request.headers())?;
        self.receive(request).await
    }

    /// The body of a form, the boundary of its parts, and what it takes of the budget until that is dropped.
    pub async fn form(&self, request: Request) -> Result<(Bytes, String, Reserved), ApiError> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let boundary = multer::parse_boundary(kind.unwrap_or_default()).map_err(|_| {
            ApiError::unsupported_media(
                "the header `content-type` must be `multipart/form-data` with a boundary",
            )
        })?;
        let ReceivedBody { bytes, reserved } = self.receive(request).await?;
        Ok((bytes, boundary, reserved))
    }

    async fn receive(&self, request: Request) -> Result<ReceivedBody, ApiError> {
        let (head, body) = request.into_parts();
        let most = self.limits.body_bytes;
        let too_large = || ApiError::too_large(format!("the body must be at most {most} bytes"));
        let declared =
            head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|bytes| bytes > most as u64) {
            discard(body, &head.headers).await;
            return Err(too_large());
        }
        let read = tokio::time::timeout(self.limits.body_timeout, self.read(body)).await;
        let (rest, error) =
            match read.map_err(|_| ApiError::body_timeout(self.limits.body_timeout.as_secs()))?? {
                Read::All(received) => return Ok(received),
                Read::TooLarge(rest) => (rest, too_large()),
                Read::OverBudget(rest) => (rest, over_budget()),
            };
        discard(rest, &head.headers).await;
        Err(error)
    }

    async fn read(&self, mut body: Body) -> Result<Read, ApiError> {
        let mut bytes = BytesMut::new();
        let mut reserved = self.budget.nothing();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::malformed(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > self.limits.body_bytes {
                return Ok(Read::TooLarge(body));
            }
            if !reserved.grow(data.len() as u64) {
                return Ok(Read::OverBudget(body));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Read::All(ReceivedBody { bytes: bytes.freeze(), reserved }))
    }
}

fn over_budget() -> ApiError {
    ApiError::busy("the server is receiving too many large requests")
}

/// Requires JSON: a browser can send forms cross-origin without a preflight, but not JSON.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !kind.ends_with("+json") {
        return Err(ApiError::unsupported_media("the header `content-type` must be `application/json`"));
    }
    Ok(())
}

fn check_coding(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get(CONTENT_ENCODING) {
        Some(coding) if coding != "identity" => {
            Err(ApiError::unsupported_media("the header `content-encoding` must be absent: send plain JSON"))
        }
        _ => Ok(()),
    }
}

enum Read {
    All(ReceivedBody),
    TooLarge(Body),
    /// Other bodies take what there is.
    OverBudget(Body),
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
