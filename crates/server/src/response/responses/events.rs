//! Numbers the events of a stream.

use crate::response::Frames;
use crate::wire::responses::response::{EventData, StreamEvent};

/// The number of the next event.
#[derive(Debug, Default)]
pub struct Events {
    next: u64,
}

impl Events {
    /// Appends an event.
    pub fn push(&mut self, kind: &'static str, data: EventData, frames: &mut Frames) {
        frames.event(kind, &StreamEvent { kind, sequence_number: self.next, data });
        self.next += 1;
    }
}
