//! The engine interface that the server uses, so that tests can provide a scripted engine.
//!
//! Invariant: no wire types. Dropping [`Events`] cancels the request behind it.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use omnibus_engine::{
    AddSpecial, Event, Failure, Handle, Health, Input, ModelInfo, Request, RequestInfo, SessionInfo, Stats,
    Transcription, TranscriptionEvent,
};

/// The events of one request, ending after its last.
pub type Events = BoxStream<'static, Event>;

/// The events of one transcription, ending after its last. Dropping them cancels it.
pub type Transcripts = BoxStream<'static, TranscriptionEvent>;

/// Accepts requests and returns their events. [`Handle`] is the real implementation.
pub trait Engine: Send + Sync + 'static {
    /// All served models.
    fn models(&self) -> Vec<ModelInfo>;
    /// Tokenizes, validates and queues a request. Takes milliseconds of CPU: not for an async thread.
    fn submit(&self, request: Request) -> Result<Events, Failure>;
    /// Decodes a sound and begins to write it down. Takes up to seconds of CPU: not for an async thread.
    fn transcribe(&self, transcription: Transcription) -> Result<Transcripts, Failure>;
    /// Cancels a request; false when no request has that id.
    fn cancel(&self, id: &str) -> bool;
    /// Queued and running requests.
    fn requests(&self) -> Vec<RequestInfo>;
    /// Sessions of a tenant. May wait for a step: not for an async thread.
    fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure>;
    /// Drops a session of a tenant; false when no session has that id. Waits like [`Self::sessions`].
    fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure>;
    /// The prompt tokens of a request with this input.
    fn tokenize(&self, model: Option<&str>, input: &Input, special: AddSpecial) -> Result<Vec<u32>, Failure>;
    /// The bytes of each token.
    fn pieces(&self, model: Option<&str>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure>;
    /// The text of tokens.
    fn detokenize(&self, model: Option<&str>, tokens: &[u32]) -> Result<String, Failure>;
    /// Whether the engine steps while it has work.
    fn health(&self) -> Health;
    /// Current statistics.
    fn stats(&self) -> Stats;
    /// Loads the adapter in a directory, under a name. Waits until it is loaded: not for an async thread.
    fn load_adapter(&self, name: &str, path: &Path) -> Result<ModelInfo, Failure>;
    /// Unloads an adapter once the requests that use it have ended; new ones are refused at once.
    fn unload_adapter<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Failure>>;
    /// Refuses new requests, waits for running ones up to `timeout`, then cancels the rest.
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

    fn transcribe(&self, transcription: Transcription) -> Result<Transcripts, Failure> {
        let events = Handle::transcribe(self, transcription)?;
        let next = |mut events: omnibus_engine::TranscriptionStream| async move {
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

    fn load_adapter(&self, name: &str, path: &Path) -> Result<ModelInfo, Failure> {
        Handle::load_adapter(self, name, path)
    }

    fn unload_adapter<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(Handle::unload_adapter(self, name))
    }

    fn drain(&self, timeout: Duration) -> BoxFuture<'_, ()> {
        Box::pin(Handle::drain(self, timeout))
    }
}
