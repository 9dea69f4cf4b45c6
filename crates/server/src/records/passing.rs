//! Bodies that are watched while they pass.
//!
//! Invariant: bytes are shared and not copied; above a limit they are not kept.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Most bytes that are kept of one body.
const BYTES_MAX: usize = 32 << 20;

/// What has passed of a body.
#[derive(Default)]
pub struct Passed {
    frames: Vec<Bytes>,
    size: usize,
    /// When its first bytes passed.
    pub first: Option<Instant>,
    /// Whether it passed to its end, and was kept.
    pub is_whole: bool,
}

impl Passed {
    /// How many bytes passed.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The bytes, when they are kept.
    pub fn bytes(&self) -> Vec<u8> {
        self.frames.concat()
    }

    fn push(&mut self, data: &Bytes) {
        self.first.get_or_insert_with(Instant::now);
        self.size += data.len();
        if self.size <= BYTES_MAX {
            self.frames.push(data.clone());
        } else {
            self.frames = Vec::new();
        }
    }
}

/// What has passed of a body, for one who reads it later.
#[derive(Clone, Default)]
pub struct Passing(Arc<Mutex<Passed>>);

impl Passing {
    /// Takes what has passed.
    pub fn take(&self) -> Passed {
        self.change(std::mem::take)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Passed) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A body that is watched.
pub struct Watched<F: FnOnce(Passing)> {
    body: Body,
    passing: Passing,
    /// Called when the body has passed or is dropped.
    at_end: Option<F>,
    is_at_end: bool,
}

impl<F: FnOnce(Passing)> Watched<F> {
    /// Watches a body.
    pub fn new(body: Body, passing: Passing, at_end: F) -> Self {
        Self { body, passing, at_end: Some(at_end), is_at_end: false }
    }
}

impl<F: FnOnce(Passing) + Unpin> HttpBody for Watched<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.passing.change(|passed| passed.push(data));
                }
            }
            Poll::Ready(None) => self.is_at_end = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F: FnOnce(Passing)> Drop for Watched<F> {
    fn drop(&mut self) {
        let is_at_end = self.is_at_end || self.body.is_end_stream();
        self.passing.change(|passed| passed.is_whole = is_at_end && passed.size <= BYTES_MAX);
        if let Some(at_end) = self.at_end.take() {
            at_end(self.passing.clone());
        }
    }
}
