//! Limits on request bodies: size, time, content type, coding, and how many bytes are held at once.
//!
//! Invariant: a limit is checked before memory is allocated for the limited data.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use multer::Multipart;
use serde_json::Value;

use crate::body_coding::{BodyCoding, decompressed};
use crate::error::ApiError;
use crate::room::{Place, Room};
use crate::wire::json;

/// Limits on HTTP requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body_bytes: usize,
    /// Most bytes of all bodies that are being received or wait to be read. At least one largest body has room.
    pub received_bytes: usize,
    /// Most bytes that all bodies take while they are read. One that would take more is read alone.
    pub read_bytes: usize,
    /// Longest time that a body waits for room.
    pub room_wait: Duration,
    /// Longest time for a body to arrive.
    pub body_timeout: Duration,
    /// Longest time without any of a body that has room.
    pub stall_timeout: Duration,
    /// Longest time for the request line and headers to arrive.
    pub header_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            received_bytes: 64 << 20,
            read_bytes: 128 << 20,
            room_wait: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
        }
    }
}

/// Bodies and messages up to this size need no room.
pub const SMALL_BYTES: usize = 64 << 10;
/// Bytes that reading takes for each byte of a body, measured with a chat of one long message: the body, what its escapes stand
/// for, the text in the conversation and in the rendered prompt.
const READ_BYTES: usize = 4;
/// Bytes that reading takes for each value of a body: objects of one key take most.
const VALUE_BYTES: usize = 192;
/// Memory that reading took is returned to the system from this size on.
const RETURNED_BYTES: usize = 16 << 20;
/// Bodies from this size on are measured off the threads that serve connections.
const LONG_MEASURE_BYTES: usize = 1 << 20;
/// Most bytes of a too large body that are read and discarded, so that the client gets to read the response.
const DISCARD_BYTES_MAX: usize = 256 << 20;
/// Longest time spent on discarding.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives bodies within limits.
#[derive(Debug)]
pub struct Bodies {
    limits: Limits,
    /// For bodies that arrive.
    receiving: Room,
    /// For what becomes of them.
    reading: Room,
}

/// Limits on messages that arrive on a connection.
#[derive(Debug, Clone)]
pub struct MessageLimits {
    /// Most bytes of one.
    pub most_bytes: usize,
    /// What those above [`SMALL_BYTES`] wait for.
    pub room: Room,
    /// Longest time for one to arrive that has room.
    pub timeout: Duration,
}

/// A JSON body that is not parsed yet.
#[derive(Debug)]
pub struct ReceivedBody {
    bytes: Bytes,
    received: Option<Place>,
    /// What reading it takes.
    reading: Reading,
}

/// What a request takes of the room until this is dropped: once its texts are tokenized or gone.
#[derive(Debug, Default)]
pub struct Reading {
    place: Option<Place>,
    freed: Freed,
}

/// What happens to memory that was taken.
#[derive(Debug, Default, PartialEq, Eq)]
enum Freed {
    /// The allocator keeps it, for the next request.
    #[default]
    Kept,
    /// The system gets it.
    Returned,
}

impl Drop for Reading {
    fn drop(&mut self) {
        // Before others take the place.
        if self.freed == Freed::Returned {
            omnibus_engine::return_freed();
        }
        drop(self.place.take());
    }
}

impl ReceivedBody {
    /// The body's value, with what it takes of the room.
    pub fn parse(self) -> Result<(Value, Reading), ApiError> {
        let Self { bytes, received, reading } = self;
        let value = json::parse(&bytes);
        drop((bytes, received));
        Ok((value?, reading))
    }
}

impl Bodies {
    /// Within these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            receiving: Room::new(limits.received_bytes.max(limits.body_bytes), limits.room_wait),
            reading: Room::new(limits.read_bytes.max(limits.body_bytes), limits.room_wait),
        }
    }

    /// Largest body, in bytes.
    pub fn most_bytes(&self) -> usize {
        self.limits.body_bytes
    }

    /// Limits on the messages of a connection.
    pub fn messages(&self) -> MessageLimits {
        let Limits { body_bytes, body_timeout, .. } = self.limits;
        MessageLimits { most_bytes: body_bytes, room: self.receiving.clone(), timeout: body_timeout }
    }

    /// What a message that has arrived takes of the room while it is read.
    pub async fn message(&self, text: &[u8]) -> Result<Reading, ApiError> {
        match text.len() {
            0..=SMALL_BYTES => Ok(Reading::default()),
            _ => self.room_to_read(reading_bytes(text)?).await,
        }
    }

    /// The JSON body of a request, not parsed yet.
    pub async fn json(&self, request: Request) -> Result<ReceivedBody, ApiError> {
        check_type(request.headers())?;
        self.untyped_json(request).await
    }

    /// A JSON body whatever its type says, for an API whose clients send none. A browser's page cannot use it for more than
    /// it may: its origin was checked.
    pub async fn untyped_json(&self, request: Request) -> Result<ReceivedBody, ApiError> {
        let coding = BodyCoding::of(request.headers())?;
        let (bytes, received) = self.receive(request).await?;
        let (bytes, received) = match coding {
            BodyCoding::Identity => (bytes, received),
            BodyCoding::Zstd => self.decompressed(bytes, received).await?,
        };
        if bytes.len() <= SMALL_BYTES {
            return Ok(ReceivedBody { bytes, received, reading: Reading::default() });
        }
        let reading = if bytes.len() < LONG_MEASURE_BYTES {
            reading_bytes(&bytes)?
        } else {
            let bytes = bytes.clone();
            let counted = tokio::task::spawn_blocking(move || reading_bytes(&bytes)).await;
            counted.map_err(|error| ApiError::internal(error.to_string()))??
        };
        let reading = self.room_to_read(reading).await?;
        Ok(ReceivedBody { bytes, received, reading })
    }

    /// A body that was compressed, with the room that it takes. It waits for that room when all of it has arrived.
    async fn decompressed(
        &self,
        bytes: Bytes,
        received: Option<Place>,
    ) -> Result<(Bytes, Option<Place>), ApiError> {
        // Bodies that each have a part of their room would wait for each other.
        drop(received);
        let most = self.limits.body_bytes;
        let place = self.receiving.place(most).await.ok_or_else(busy)?;
        let work = move || decompressed(&bytes, most);
        let bytes = tokio::task::spawn_blocking(work).await;
        let bytes = bytes.map_err(|error| ApiError::internal(error.to_string()))??;
        let place = (bytes.len() > SMALL_BYTES).then_some(place);
        Ok((bytes.into(), place))
    }

    async fn room_to_read(&self, bytes: usize) -> Result<Reading, ApiError> {
        let place = Some(self.reading.place(bytes).await.ok_or_else(busy)?);
        Ok(Reading { place, freed: if bytes < RETURNED_BYTES { Freed::Kept } else { Freed::Returned } })
    }

    /// The body of a form, the boundary of its parts, and what it takes of the room until that is dropped.
    pub async fn form(&self, request: Request) -> Result<(Bytes, String, Option<Place>), ApiError> {
        let boundary = boundary(request.headers())?;
        let (bytes, place) = self.receive(request).await?;
        Ok((bytes, boundary, place))
    }

    /// A form that is read as it arrives, of so many bytes at most. A client may pause, but for no longer than the longest
    /// time without any of a body.
    pub async fn form_stream(&self, request: Request, most: u64) -> Result<Multipart<'static>, ApiError> {
        let boundary = boundary(request.headers())?;
        let (head, body) = request.into_parts();
        if declared(&head.headers).is_some_and(|bytes| bytes as u64 > most) {
            discard(body, &head.headers).await;
            return Err(ApiError::too_large(format!("the body must be at most {most} bytes")));
        }
        let stall = self.limits.stall_timeout;
        let next = move |mut body: Body| async move {
            let frame = match tokio::time::timeout(stall, body.frame()).await {
                Ok(frame) => frame?.map_err(|error| error.to_string()),
                Err(_) => Err(format!("nothing came for {} s", stall.as_secs())),
            };
            let data = frame.map(|frame| frame.into_data().unwrap_or_default());
            Some((data.map_err(std::io::Error::other), body))
        };
        Ok(Multipart::new(futures::stream::unfold(body, next), boundary))
    }

    async fn receive(&self, request: Request) -> Result<(Bytes, Option<Place>), ApiError> {
        let (head, body) = request.into_parts();
        let most = self.limits.body_bytes;
        let too_large = || ApiError::too_large(format!("the body must be at most {most} bytes"));
        let declared = declared(&head.headers);
        if declared.is_some_and(|bytes| bytes > most) {
            discard(body, &head.headers).await;
            return Err(too_large());
        }
        // The whole room that it may need: bodies that each have a part of it would wait for each other.
        let wanted = declared.unwrap_or(most);
        let place = match wanted {
            0..=SMALL_BYTES => None,
            _ => match self.receiving.place(wanted).await {
                Some(place) => Some(place),
                None => {
                    discard(body, &head.headers).await;
                    return Err(busy());
                }
            },
        };
        let read = tokio::time::timeout(self.limits.body_timeout, self.read(body, declared)).await;
        match read.map_err(|_| ApiError::body_timeout(self.limits.body_timeout.as_secs()))?? {
            Read::All(bytes) => Ok((bytes, place)),
            Read::TooLarge(rest) => {
                drop(place);
                discard(rest, &head.headers).await;
                Err(too_large())
            }
        }
    }

    async fn read(&self, mut body: Body, declared: Option<usize>) -> Result<Read, ApiError> {
        let mut bytes = BytesMut::with_capacity(declared.unwrap_or_default());
        let stall = self.limits.stall_timeout;
        loop {
            let frame = tokio::time::timeout(stall, body.frame()).await;
            let Some(frame) = frame.map_err(|_| ApiError::body_timeout(stall.as_secs()))? else { break };
            let frame = frame.map_err(|error| ApiError::malformed(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > self.limits.body_bytes {
                return Ok(Read::TooLarge(body));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Read::All(bytes.freeze()))
    }
}

/// How many bytes a client says that it sends.
fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// The boundary of a form's parts.
fn boundary(headers: &HeaderMap) -> Result<String, ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    multer::parse_boundary(kind.unwrap_or_default()).map_err(|_| {
        ApiError::unsupported_media("the header `content-type` must be `multipart/form-data` with a boundary")
    })
}

/// Bytes that reading a body takes.
fn reading_bytes(body: &[u8]) -> Result<usize, ApiError> {
    let values = json::count_values(body)?;
    Ok(body.len().saturating_mul(READ_BYTES).saturating_add(values.saturating_mul(VALUE_BYTES)))
}

fn busy() -> ApiError {
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

enum Read {
    All(Bytes),
    TooLarge(Body),
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
