//! A request's events, as its client receives them.

use tokio::sync::mpsc::UnboundedReceiver;

use super::output_processor::CancelOnDrop;
use crate::event::Event;

/// A request's events, as its client receives them. Dropping it cancels the request.
///
/// The channel is unbounded because the request is bounded: it holds at most one event per token.
pub struct EventStream {
    id: String,
    events: UnboundedReceiver<Event>,
    _cancel_on_drop: CancelOnDrop,
}

impl EventStream {
    pub(super) fn new(id: String, events: UnboundedReceiver<Event>, cancel_on_drop: CancelOnDrop) -> Self {
        Self { id, events, _cancel_on_drop: cancel_on_drop }
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The next event, for threads that may block; `None` after the last.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}
