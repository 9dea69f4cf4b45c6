//! Server-sent events.
//!
//! Invariant: nothing is buffered here. A client that does not read stops its own stream only.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};

use super::frame::Frame;

/// Interval of keep-alive comments on a silent stream.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A response that streams frames.
pub fn response(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let events = frames.map(|frame| Ok::<_, Infallible>(event(frame)));
    let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive"));
    let mut response = sse.into_response();
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn event(frame: Frame) -> Event {
    let event = match frame.event {
        Some(name) => Event::default().event(name),
        None => Event::default(),
    };
    event.data(frame.data)
}
