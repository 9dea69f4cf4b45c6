//! A request's events, as its client receives them.

use tokio::sync::mpsc::UnboundedReceiver;

use super::narrator::Hangup;
use crate::Event;

/// A request's events, as its client receives them. Dropping it cancels the request.
///
/// The channel has no bound of its own because the request has: it holds at most one event a token.
pub struct EventStream {
    id: String,
    events: UnboundedReceiver<Event>,
    _hangup: Hangup,
}

impl EventStream {
    pub(super) fn new(id: String, events: UnboundedReceiver<Event>, hangup: Hangup) -> Self {
        Self { id, events, _hangup: hangup }
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The next event, for threads that may wait; `None` after the last.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}
