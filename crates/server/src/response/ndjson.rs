//! Streams of JSON objects, one a line.
//!
//! Invariant: nothing is buffered here. A client that does not read stops its own stream only.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};

use super::frame::Frame;

/// The type of such a stream.
pub const TYPE: &str = "application/x-ndjson";

/// A response that streams the data of frames. Their names are no part of it.
pub fn response(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let lines = frames.map(|frame| Ok::<_, Infallible>(frame.data + "\n"));
    let mut response = Body::from_stream(lines).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
