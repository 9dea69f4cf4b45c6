//! Server-sent events.
//!
//! Invariant: nothing is buffered here. A client that does not read stops its own stream only.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Serialize;

/// Interval of keep-alive comments on a silent stream.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event.
#[derive(Debug)]
pub struct Message(Event);

impl Message {
    /// A chunk of an answer.
    pub fn data(chunk: &impl Serialize) -> Self {
        Self(Event::default().data(json(chunk)))
    }

    /// What went wrong after the first byte.
    pub fn error(body: &impl Serialize) -> Self {
        Self(Event::default().event("error").data(json(body)))
    }

    /// The last event of every stream.
    pub fn done() -> Self {
        Self(Event::default().data("[DONE]"))
    }
}

/// Wire types have string keys and finite numbers, so that they always serialize.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a wire type did not serialize");
        "{}".into()
    })
}

/// A response that streams messages.
pub fn response(messages: impl Stream<Item = Message> + Send + 'static) -> Response {
    let events = messages.map(|message| Ok::<_, Infallible>(message.0));
    let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive"));
    let mut response = sse.into_response();
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
