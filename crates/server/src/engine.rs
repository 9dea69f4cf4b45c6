//! The engine interface that the server uses, so that tests can provide a scripted engine.
//!
//! Invariant: no wire types. Dropping [`Events`] cancels the request behind it.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use omnibus_engine::{
    AddSpecial, Admission, BlockQuery, BlocksRefused, Chat, Event, Failure, Handle, Health, Input, ModelInfo,
    Pooled, Pooler, PoolingRequest, Request, RequestInfo, Scoring, ScoringRequest, SessionInfo, Stats,
    Transcription, TranscriptionEvent, WatchedSteps,
};
use serde_json::Value;

/// The events of one request, ending after its last.
pub type Events = BoxStream<'static, Event>;

/// The events of one transcription, ending after its last. Dropping them cancels it.
pub type Transcripts = BoxStream<'static, TranscriptionEvent>;

/// The steps of a model's engine as they happen, ending with the engine.
pub type Steps = BoxStream<'static, WatchedSteps>;

/// What texts become, in their order.
pub type PooledTexts = BoxFuture<'static, Result<Vec<Pooled>, Failure>>;

/// How likely replies are.
pub type ScoredReplies = BoxFuture<'static, Result<Scoring, Failure>>;

/// KV blocks, each with its header, and how many names of the query they answer.
pub type BlockRecords = (Vec<Bytes>, usize);

/// The name that a client gives a model or an adapter; `None` means the model that is listed first.
pub type ModelName<'a> = Option<&'a str>;

/// What keeps a model loaded, as long as a clone of it is there.
#[derive(Clone, Default)]
pub struct Lease(#[allow(dead_code, reason = "it is dropped")] Option<Arc<dyn Any + Send + Sync>>);

impl Lease {
    /// One that ends when this is dropped.
    pub fn new(lease: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(lease)))
    }
}

/// How long a model stays loaded after its last use, unless its memory is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeToLive {
    /// As the server was started.
    Configured,
    /// As long as the server runs.
    Forever,
    /// So long; at zero it goes with its last request.
    For(Duration),
}

/// What a server of several models knows of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Residence {
    /// `unloaded`, `loading`, `loaded`, `draining`, `unloading` or `failed`.
    pub status: &'static str,
    /// Why it could not be loaded, where it failed.
    pub failure: Option<String>,
    /// Bytes of memory that it takes, or is expected to take.
    pub bytes: u64,
    /// Requests that use it.
    pub active: usize,
    /// Requests that wait until it is loaded.
    pub waiting: usize,
    /// When a request used it last.
    pub last_used: Option<SystemTime>,
    /// When it goes unless it is used again; `None` for not by itself.
    pub expires: Option<SystemTime>,
    /// Whether it stays when another needs its memory.
    pub pinned: bool,
    /// How often it was loaded.
    pub loads: u64,
}

/// Accepts requests and returns their events. [`Handle`] is the real implementation.
pub trait Engine: Send + Sync + 'static {
    /// All served models.
    fn models(&self) -> Vec<ModelInfo>;
    /// The right to use a model, which is loaded first where it is not. Of a name that is not served, nothing: what uses it
    /// fails. Everything else that names a model fails while it is not loaded.
    fn lease<'a>(&'a self, _model: ModelName<'a>) -> BoxFuture<'a, Result<Lease, Failure>> {
        Box::pin(async { Ok(Lease::default()) })
    }
    /// Unloads a model once the requests that use it have ended, and waits until its memory is given back.
    fn unload<'a>(&'a self, _model: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Err(Failure::bad_request("model", "this server keeps its model loaded")) })
    }
    /// What a model of the hub would need here, before it is downloaded: as `omnibus plan --json` prints it. `None` where
    /// models are not downloaded.
    fn plan<'a>(&'a self, _model: &'a str) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(async { Ok(None) })
    }
    /// How long a model stays loaded after its last use, from now on.
    fn set_ttl(&self, _model: ModelName<'_>, _ttl: TimeToLive) {}
    /// Where a model is, in a server that loads and unloads models.
    fn residence(&self, _model: ModelName<'_>) -> Option<Residence> {
        None
    }
    /// A place in a model's queue for a tenant's request whose media are fetched before it is submitted. Fails while it is
    /// full.
    fn admit(&self, model: ModelName<'_>, tenant: &str) -> Result<Admission, Failure>;
    /// Tokenizes, validates and queues a request. Takes milliseconds of CPU: not for an async thread.
    fn submit(&self, request: Request) -> Result<Events, Failure>;
    /// Decodes a sound and begins to write it down. Takes up to seconds of CPU: not for an async thread.
    fn transcribe(&self, transcription: Transcription) -> Result<Transcripts, Failure>;
    /// Tokenizes texts, to be pooled. Takes up to seconds of CPU: not for an async thread. Dropping the result cancels them.
    fn pool(&self, pooling: PoolingRequest) -> Result<PooledTexts, Failure>;
    /// Tokenizes prompts and the replies to them, to be scored. Takes up to seconds of CPU: not for an async thread. Dropping
    /// the result cancels them.
    fn score(&self, scoring: ScoringRequest) -> Result<ScoredReplies, Failure>;
    /// What becomes of a model's hidden states.
    fn pooler(&self, model: ModelName<'_>) -> Result<Pooler, Failure>;
    /// Cancels a request; false when no request has that id.
    fn cancel(&self, id: &str) -> bool;
    /// Queued and running requests.
    fn requests(&self) -> Vec<RequestInfo>;
    /// A tenant's sessions with a model. May wait for a step: not for an async thread.
    fn sessions(&self, model: ModelName<'_>, tenant: &str) -> Result<Vec<SessionInfo>, Failure>;
    /// Drops a tenant's session with a model; false when no session has that id. Waits like [`Self::sessions`].
    fn drop_session(&self, model: ModelName<'_>, tenant: &str, id: &str) -> Result<bool, Failure>;
    /// Places in a query of the KV blocks that there are, for another replica. Waits like [`Self::sessions`].
    fn find_blocks(&self, _query: BlockQuery) -> Result<Result<Vec<usize>, BlocksRefused>, Failure> {
        Ok(Err(BlocksRefused::NotServed))
    }
    /// The records of the leading blocks of a query, and how many names they answer. Waits like [`Self::sessions`].
    fn read_blocks(&self, _query: BlockQuery) -> Result<Result<BlockRecords, BlocksRefused>, Failure> {
        Ok(Err(BlocksRefused::NotServed))
    }
    /// The prompt tokens of a request with this input.
    fn tokenize(&self, model: ModelName<'_>, input: &Input, special: AddSpecial)
    -> Result<Vec<u32>, Failure>;
    /// A conversation as the model's chat template renders it.
    fn render(&self, model: ModelName<'_>, chat: Chat) -> Result<String, Failure>;
    /// A text from elsewhere without the tokens that steer a model: each is split.
    fn without_markers(&self, model: ModelName<'_>, text: &str) -> Result<String, Failure>;
    /// The bytes of each token.
    fn pieces(&self, model: ModelName<'_>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure>;
    /// The text of tokens.
    fn detokenize(&self, model: ModelName<'_>, tokens: &[u32]) -> Result<String, Failure>;
    /// Whether a model's engine steps while it has work.
    fn health(&self, model: ModelName<'_>) -> Result<Health, Failure>;
    /// Current statistics of a model's engine.
    fn stats(&self, model: ModelName<'_>) -> Result<Stats, Failure>;
    /// The steps of a model that is loaded, from now on. Dropping them ends their recording.
    fn watch_steps(&self, model: ModelName<'_>) -> Result<Steps, Failure>;
    /// Current statistics of each replica of a model; none while it is not loaded.
    fn replica_stats(&self, model: ModelName<'_>) -> Result<Vec<Stats>, Failure> {
        Ok(vec![self.stats(model)?])
    }
    /// Loads the adapter of a model in a directory, under a name. Waits until it is loaded: not for an async thread.
    fn load_adapter(&self, model: ModelName<'_>, name: &str, path: &Path) -> Result<ModelInfo, Failure>;
    /// Unloads an adapter once the requests that use it have ended; new ones are refused at once.
    fn unload_adapter<'a>(
        &'a self,
        model: ModelName<'a>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>>;
    /// Refuses new requests, waits for running ones up to `timeout`, then cancels the rest.
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, ()>;
}

impl Engine for Handle {
    fn models(&self) -> Vec<ModelInfo> {
        Handle::models(self)
    }

    fn admit(&self, model: ModelName<'_>, tenant: &str) -> Result<Admission, Failure> {
        self.check_model(model)?;
        Handle::admit(self, tenant)
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

    fn pool(&self, pooling: PoolingRequest) -> Result<PooledTexts, Failure> {
        Ok(Box::pin(Handle::pool(self, pooling)?.results()))
    }

    fn score(&self, scoring: ScoringRequest) -> Result<ScoredReplies, Failure> {
        Ok(Box::pin(Handle::score(self, scoring)?.results()))
    }

    fn pooler(&self, model: ModelName<'_>) -> Result<Pooler, Failure> {
        Handle::pooler(self, model)
    }

    fn cancel(&self, id: &str) -> bool {
        Handle::cancel(self, id)
    }

    fn requests(&self) -> Vec<RequestInfo> {
        Handle::requests(self)
    }

    fn sessions(&self, model: ModelName<'_>, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        self.check_model(model)?;
        Handle::sessions(self, tenant)
    }

    fn find_blocks(&self, query: BlockQuery) -> Result<Result<Vec<usize>, BlocksRefused>, Failure> {
        Handle::find_blocks(self, query)
    }

    fn read_blocks(&self, query: BlockQuery) -> Result<Result<BlockRecords, BlocksRefused>, Failure> {
        Handle::read_blocks(self, query)
    }

    fn drop_session(&self, model: ModelName<'_>, tenant: &str, id: &str) -> Result<bool, Failure> {
        self.check_model(model)?;
        Handle::drop_session(self, tenant, id)
    }

    fn tokenize(
        &self,
        model: ModelName<'_>,
        input: &Input,
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        Handle::tokenize(self, model, input, special)
    }

    fn render(&self, model: ModelName<'_>, chat: Chat) -> Result<String, Failure> {
        Handle::render(self, model, chat)
    }

    fn without_markers(&self, model: ModelName<'_>, text: &str) -> Result<String, Failure> {
        Handle::without_markers(self, model, text)
    }

    fn pieces(&self, model: ModelName<'_>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        Handle::pieces(self, model, tokens)
    }

    fn detokenize(&self, model: ModelName<'_>, tokens: &[u32]) -> Result<String, Failure> {
        Handle::detokenize(self, model, tokens)
    }

    fn health(&self, model: ModelName<'_>) -> Result<Health, Failure> {
        self.check_model(model)?;
        Ok(Handle::health(self))
    }

    fn stats(&self, model: ModelName<'_>) -> Result<Stats, Failure> {
        self.check_model(model)?;
        Ok(Handle::stats(self))
    }

    fn watch_steps(&self, model: ModelName<'_>) -> Result<Steps, Failure> {
        self.check_model(model)?;
        let watch = Handle::watch_steps(self)?;
        Ok(stream::unfold(watch, async |mut watch| Some((watch.next().await?, watch))).boxed())
    }

    fn replica_stats(&self, model: ModelName<'_>) -> Result<Vec<Stats>, Failure> {
        self.check_model(model)?;
        Ok(Handle::replica_stats(self))
    }

    fn load_adapter(&self, model: ModelName<'_>, name: &str, path: &Path) -> Result<ModelInfo, Failure> {
        self.check_model(model)?;
        Handle::load_adapter(self, name, path)
    }

    fn unload_adapter<'a>(
        &'a self,
        model: ModelName<'a>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            self.check_model(model)?;
            Handle::unload_adapter(self, name).await
        })
    }

    fn drain(&self, timeout: Duration) -> BoxFuture<'_, ()> {
        Box::pin(Handle::drain(self, timeout))
    }
}
