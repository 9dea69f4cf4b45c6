//! The thread that asks peers for blocks.
//!
//! Invariant: each request has one reply, and none takes longer than its timeout for each peer. Lookups and reads are replied
//! to in their order, one at a time; prompts that peers compute beside them, and beside each other. A peer that fails is left
//! alone for a while, which grows with each failure.

pub(crate) mod prefill;
pub(crate) mod status;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::block::{BlockName, Fingerprint};
use crate::records::{RecordError, Records};
use crate::wire::{BlockRequest, FoundBlocks, LOOKUP_PATH, NAMES_MAX, PrefillAnswer, READ_PATH};
use prefill::RemotePrefill;
pub use status::PeerStats;
use status::{FailureReason, PeerStatus};

/// Which peers there are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSettings {
    /// Their servers, `http://host:port`.
    pub urls: Vec<String>,
    /// The API key that they accept.
    pub key: Option<String>,
    /// How long a lookup or a read may take.
    pub timeout: Duration,
}

/// Without the key.
impl fmt::Debug for PeerSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { urls, key, timeout } = self;
        let key = key.as_ref().map(|_| "…");
        let mut fields = formatter.debug_struct("PeerSettings");
        fields.field("urls", urls).field("key", &key).field("timeout", timeout).finish()
    }
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self { urls: Vec::new(), key: None, timeout: Duration::from_secs(5) }
    }
}

/// What this server's blocks are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockShape {
    /// What their content depends on besides their names.
    pub fingerprint: Fingerprint,
    /// Bytes of a block of each layer group.
    pub block_bytes: Vec<usize>,
}

/// What to ask peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Which of these blocks a peer has.
    Lookup(Vec<BlockName>),
    /// Blocks of one peer, by its place in [`PeerSettings::urls`].
    Read(usize, Vec<BlockName>),
    /// The blocks of a prompt, to be computed by a peer and read later.
    Prefill(RemotePrefill),
}

/// What a peer replied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The peer that has most of the blocks, and which; none if no peer can be asked or has any.
    Found(usize, Vec<BlockName>),
    /// Blocks as far as they came whole and valid, and how long they took.
    Blocks(Vec<(BlockName, Vec<u8>)>, Duration),
    /// [`RemotePrefill::id`], and what the peer computed and how long that took; nothing where it failed.
    Prefilled(u64, Option<(PrefillAnswer, Duration)>),
}

/// The thread and its peers. Dropping it ends the thread after the request that runs.
pub struct Peers {
    requests: UnboundedSender<Request>,
    statuses: Arc<Mutex<Vec<PeerStatus>>>,
}

impl Peers {
    /// Starts the thread, which calls `on_reply` with the reply to each request.
    pub fn start(
        settings: PeerSettings,
        shape: BlockShape,
        on_reply: impl Fn(Reply) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let http = http_client(&settings).map_err(std::io::Error::other)?;
        let statuses: Vec<PeerStatus> = settings.urls.iter().map(|url| PeerStatus::new(url)).collect();
        let statuses = Arc::new(Mutex::new(statuses));
        let (requests, inbox) = unbounded_channel();
        let client = Client { settings, shape, http, statuses: Arc::clone(&statuses) };
        let (client, on_reply) = (Arc::new(client), Arc::new(on_reply));
        let thread = std::thread::Builder::new().name("omnibus-kv-peer".to_owned());
        thread.spawn(move || runtime.block_on(run(client, inbox, on_reply)))?;
        Ok(Self { requests, statuses })
    }

    /// Sends a request. False if the thread has ended.
    pub fn send(&self, request: Request) -> bool {
        self.requests.send(request).is_ok()
    }

    /// Whether a peer may be asked now.
    pub fn is_usable(&self) -> bool {
        let now = Instant::now();
        lock(&self.statuses).iter().any(|status| status.is_usable(now))
    }

    /// Statistics, and the state of each peer.
    pub fn stats(&self) -> PeerStats {
        PeerStats::of(&lock(&self.statuses), Instant::now())
    }
}

/// Follows no redirect and uses no proxy: blocks go between the servers that the operator named.
fn http_client(settings: &PeerSettings) -> reqwest::Result<reqwest::Client> {
    // A second provider is not installed, and the first one serves as well.
    _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("mlx-omnibus/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(settings.timeout)
        .timeout(settings.timeout)
        .build()
}

struct Client {
    settings: PeerSettings,
    shape: BlockShape,
    http: reqwest::Client,
    statuses: Arc<Mutex<Vec<PeerStatus>>>,
}

/// Why a request failed, and in words.
struct Failed(FailureReason, String);

async fn run(
    client: Arc<Client>,
    mut inbox: UnboundedReceiver<Request>,
    on_reply: Arc<impl Fn(Reply) + Send + Sync + 'static>,
) {
    while let Some(request) = inbox.recv().await {
        match request {
            Request::Lookup(names) => on_reply(client.lookup(names).await),
            Request::Read(peer, names) => on_reply(client.read(peer, names).await),
            Request::Prefill(prefill) => {
                let (client, on_reply) = (Arc::clone(&client), Arc::clone(&on_reply));
                tokio::spawn(async move { on_reply(client.prefill(prefill).await) });
            }
        }
    }
}

impl Client {
    /// Asks the peers one after the other, until one has all.
    async fn lookup(&self, mut names: Vec<BlockName>) -> Reply {
        names.truncate(NAMES_MAX);
        let mut best = (0, Vec::new());
        for (peer, url) in self.settings.urls.iter().enumerate() {
            if !lock(&self.statuses).get(peer).is_some_and(|status| status.is_usable(Instant::now())) {
                continue;
            }
            let found = self.lookup_at(url, &names).await;
            let found = found.unwrap_or_else(|failed| {
                self.failed(peer, &failed);
                Vec::new()
            });
            if found.len() > best.1.len() {
                best = (peer, found);
            }
            if best.1.len() == names.len() {
                break;
            }
        }
        Reply::Found(best.0, best.1)
    }

    async fn lookup_at(&self, url: &str, names: &[BlockName]) -> Result<Vec<BlockName>, Failed> {
        let response = self.post(url, LOOKUP_PATH, names).await?;
        // Each place takes six bytes at most, and the object around them little.
        let answer: FoundBlocks = answer(response, 64 + 6 * names.len()).await?;
        if !answer.found.is_sorted_by(|one, next| one < next) {
            return Err(wrong("places do not rise"));
        }
        let found = answer.found.iter().map(|at| names.get(*at).copied());
        found.collect::<Option<_>>().ok_or_else(|| wrong("a place is beyond the list"))
    }

    /// Reads blocks. What came before a failure is of use.
    async fn read(&self, peer: usize, names: Vec<BlockName>) -> Reply {
        let (started, mut blocks) = (Instant::now(), Vec::new());
        if let Some(url) = self.settings.urls.get(peer) {
            match self.read_from(url, &names, &mut blocks).await {
                Ok(()) => self.succeeded(peer),
                Err(failed) => self.failed(peer, &failed),
            }
        }
        let bytes = blocks.iter().map(|(_, bytes): &(BlockName, Vec<u8>)| bytes.len() as u64).sum();
        if let Some(status) = lock(&self.statuses).get_mut(peer) {
            status.count(blocks.len() as u64, bytes);
        }
        Reply::Blocks(blocks, started.elapsed())
    }

    async fn read_from(
        &self,
        url: &str,
        names: &[BlockName],
        blocks: &mut Vec<(BlockName, Vec<u8>)>,
    ) -> Result<(), Failed> {
        let mut response = self.post(url, READ_PATH, names).await?;
        let bytes_of = |name: &BlockName| self.shape.block_bytes.get(name.group as usize).copied();
        let expected = names.iter().filter_map(|name| Some((*name, bytes_of(name)?)));
        let mut records = Records::new(self.shape.fingerprint, expected);
        let invalid = |error: RecordError| Failed(FailureReason::Invalid, error.to_string());
        while let Some(chunk) = response.chunk().await.map_err(|error| Failed::of(&error))? {
            blocks.extend(records.push(&chunk).map_err(invalid)?);
        }
        records.finish().map_err(invalid)
    }

    async fn post(&self, url: &str, path: &str, names: &[BlockName]) -> Result<reqwest::Response, Failed> {
        let body = BlockRequest::new(&self.shape.fingerprint, names);
        self.send(url, path, &body, self.settings.timeout).await
    }

    async fn send(
        &self,
        url: &str,
        path: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<reqwest::Response, Failed> {
        let request =
            self.http.post(format!("{}{path}", url.trim_end_matches('/'))).json(body).timeout(timeout);
        let request = match &self.settings.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let response = request.send().await.map_err(|error| Failed::of(&error))?;
        match response.status().as_u16() {
            200 => Ok(response),
            409 => {
                let why = "it serves another model, another KV format or another block size";
                Err(Failed(FailureReason::OtherModel, why.to_owned()))
            }
            status => {
                let why = format!("it answers with the status {status}");
                Err(Failed(FailureReason::Refused, why))
            }
        }
    }

    fn succeeded(&self, peer: usize) {
        if let Some(status) = lock(&self.statuses).get_mut(peer) {
            status.succeeded();
        }
    }

    fn failed(&self, peer: usize, Failed(reason, why): &Failed) {
        if let Some(status) = lock(&self.statuses).get_mut(peer) {
            status.failed(*reason, why, Instant::now());
        }
    }
}

impl Failed {
    fn of(error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self(FailureReason::Timeout, "it does not answer in time".to_owned());
        }
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Self(FailureReason::Unreachable, format!("the connection failed: {innermost}"))
    }
}

/// A peer's answer, of so many bytes at most.
async fn answer<T: DeserializeOwned>(mut response: reqwest::Response, most: usize) -> Result<T, Failed> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Failed::of(&error))? {
        if body.len() + chunk.len() > most {
            return Err(Failed(FailureReason::Invalid, format!("its answer has more than {most} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))
}

fn wrong(why: impl fmt::Display) -> Failed {
    Failed(FailureReason::Invalid, format!("its answer is wrong: {why}"))
}

fn lock(statuses: &Mutex<Vec<PeerStatus>>) -> std::sync::MutexGuard<'_, Vec<PeerStatus>> {
    statuses.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
