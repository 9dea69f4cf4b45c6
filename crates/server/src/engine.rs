//! What the server needs of an engine, so that tests can script one.
//!
//! Invariant: no wire types. Dropping [`Events`] cancels the request behind it.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use omnibus_engine::{
    AddSpecial, Event, Failure, Handle, Health, Input, ModelInfo, Request, RequestInfo, SessionInfo, Stats,
};

/// The events of one request, ending after its last.
pub type Events = BoxStream<'static, Event>;

/// Takes requests and answers with events. [`Handle`] is the real one.
pub trait Engine: Send + Sync + 'static {
    /// Every model that can be asked for.
    fn models(&self) -> Vec<ModelInfo>;
    /// Tokenizes, checks and queues. Takes milliseconds of CPU: not for an async thread.
    fn submit(&self, request: Request) -> Result<Events, Failure>;
    /// Ends a request early; false when there is none of that id.
    fn cancel(&self, id: &str) -> bool;
    /// What is queued or running.
    fn requests(&self) -> Vec<RequestInfo>;
    /// A tenant's sessions. May wait for a step: not for an async thread.
    fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure>;
    /// Ends a tenant's session; false when there is none of that id. Waits like [`Self::sessions`].
    fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure>;
    /// The tokens that a request with this input would start from.
    fn tokenize(&self, model: Option<&str>, input: &Input, special: AddSpecial) -> Result<Vec<u32>, Failure>;
    /// The bytes of each token.
    fn pieces(&self, model: Option<&str>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure>;
    /// The text of tokens.
    fn detokenize(&self, model: Option<&str>, tokens: &[u32]) -> Result<String, Failure>;
    /// Whether steps happen when there is work.
    fn health(&self) -> Health;
    /// Gauges as they are now.
    fn stats(&self) -> Stats;
    /// Takes no more requests, waits for what runs, then cancels the rest.
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, ()>;
}

impl Engine for Handle {
    fn models(&self) -> Vec<ModelInfo> {
        Handle::models(self)
    }

    fn submit(&self, request: Request) -> Result<Events, Failure> {
        let events = Handle::submit(self, request)?;
        let next = |mut events: omnibus_engine::EventStream| async move {
            events.next().await.map(|event| (event, events))
        };
        Ok(stream::unfold(events, next).boxed())
    }

    fn cancel(&self, id: &str) -> bool {
        Handle::cancel(self, id)
    }

    fn requests(&self) -> Vec<RequestInfo> {
        Handle::requests(self)
    }

    fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        Handle::sessions(self, tenant)
    }

    fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure> {
        Handle::drop_session(self, tenant, id)
    }

    fn tokenize(&self, model: Option<&str>, input: &Input, special: AddSpecial) -> Result<Vec<u32>, Failure> {
        Handle::tokenize(self, model, input, special)
    }

    fn pieces(&self, model: Option<&str>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        Handle::pieces(self, model, tokens)
    }

    fn detokenize(&self, model: Option<&str>, tokens: &[u32]) -> Result<String, Failure> {
        Handle::detokenize(self, model, tokens)
    }

    fn health(&self) -> Health {
        Handle::health(self)
    }

    fn stats(&self) -> Stats {
        Handle::stats(self)
    }

    fn drain(&self, timeout: Duration) -> BoxFuture<'_, ()> {
        Box::pin(Handle::drain(self, timeout))
    }
}
