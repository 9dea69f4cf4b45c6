//! Frames of a stream: an optional event name, and data.

use serde::Serialize;

use crate::json_body::JsonBody;

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The event's name, in APIs that name their events.
    pub event: Option<&'static str>,
    /// The event's data, without line breaks.
    pub data: String,
}

/// Frames that are ready to be sent, in order.
#[derive(Debug, Default)]
pub struct Frames(Vec<Frame>);

impl Frames {
    /// Appends a JSON frame without an event name.
    pub fn data(&mut self, value: &impl Serialize) {
        self.push(None, JsonBody::of(value));
    }

    /// Appends a JSON frame with an event name.
    pub fn event(&mut self, name: &'static str, value: &impl Serialize) {
        self.push(Some(name), JsonBody::of(value));
    }

    /// Appends a frame whose data is a fixed text, such as `[DONE]`.
    pub fn text(&mut self, data: &'static str) {
        self.0.push(Frame { event: None, data: data.into() });
    }

    /// Takes all frames.
    pub fn take(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.0)
    }

    fn push(&mut self, event: Option<&'static str>, body: JsonBody) {
        self.0.push(Frame { event, data: body.into_text() });
    }
}
