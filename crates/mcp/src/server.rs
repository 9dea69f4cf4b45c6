//! One configured server: its state as others see it, and calls of its tools.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rmcp::{Peer, RoleClient};
use tokio::sync::{Notify, watch};

use crate::arguments::Arguments;
use crate::connection;
use crate::error::CallError;
use crate::listing::{OfferedTool, ToolState};
use crate::outcome::Outcome;
use crate::place::ServerConfig;

/// Calls in a row that got no answer in time, after which a server is started again.
const TIMEOUTS_MAX: u32 = 3;

/// A configured server.
pub struct Server {
    pub config: ServerConfig,
    live: RwLock<Live>,
    /// Changes with each state.
    state: watch::Sender<ServerState>,
    /// Calls without an answer since the last one.
    timeouts: AtomicU32,
    /// Wakes the supervisor, to start it again.
    pub stuck: Notify,
}

/// What is known of a server.
#[derive(Default)]
struct Live {
    peer: Option<Peer<RoleClient>>,
    tools: Vec<OfferedTool>,
    protocol: String,
    sandbox: String,
    starts: u64,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It is started for the first time, or again.
    Starting,
    /// Its tools are listed.
    Ready,
    /// It failed, and is started again after a pause.
    Failed(String),
}

impl ServerState {
    /// As in lists of servers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Failed(_) => "failed",
        }
    }
}

/// A server in a list.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Where it is.
    pub state: ServerState,
    /// The version of the protocol, once it was connected.
    pub protocol: String,
    /// What confines its process.
    pub sandbox: String,
    /// How often it was started.
    pub starts: u64,
    /// The tools that it listed last.
    pub tools: Vec<OfferedTool>,
}

/// What a supervisor learnt of a connection.
pub struct Connected {
    pub peer: Peer<RoleClient>,
    pub tools: Vec<OfferedTool>,
    pub protocol: String,
    pub sandbox: String,
}

impl Server {
    /// One that is about to be started.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            live: RwLock::default(),
            state: watch::Sender::new(ServerState::Starting),
            timeouts: AtomicU32::new(0),
            stuck: Notify::new(),
        }
    }

    /// Its state as a list shows it.
    pub fn status(&self) -> ServerStatus {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        ServerStatus {
            name: self.config.name.clone(),
            transport: self.config.place.transport(),
            state: self.state.borrow().clone(),
            protocol: live.protocol.clone(),
            sandbox: live.sandbox.clone(),
            starts: live.starts,
            tools: live.tools.clone(),
        }
    }

    /// Whether it is started for the first time.
    pub fn is_new(&self) -> bool {
        let starts = self.live.read().unwrap_or_else(PoisonError::into_inner).starts;
        starts <= 1 && *self.state.borrow() == ServerState::Starting
    }

    /// The tools that it listed last, in its order. They stay while it is started again, so that prompts do.
    pub fn tools(&self) -> Vec<OfferedTool> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).tools.clone()
    }

    /// It is started.
    pub fn starting(&self) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).starts += 1;
        self.state.send_replace(ServerState::Starting);
    }

    /// It is connected.
    pub fn ready(&self, connected: Connected) {
        let Connected { peer, tools, protocol, sandbox } = connected;
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        *live = Live { peer: Some(peer), tools, protocol, sandbox, starts: live.starts };
        drop(live);
        self.timeouts.store(0, Ordering::Relaxed);
        self.state.send_replace(ServerState::Ready);
    }

    /// Its tools changed.
    pub fn relisted(&self, tools: Vec<OfferedTool>) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).tools = tools;
    }

    /// It failed.
    pub fn failed(&self, why: String) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).peer = None;
        self.state.send_replace(ServerState::Failed(why));
    }

    /// Waits until it is not being started. It is for as long as its configuration says at most.
    pub async fn settled(&self) -> ServerState {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| *state != ServerState::Starting).await;
        settled.map_or_else(|_| ServerState::Failed("it was stopped".to_owned()), |state| state.clone())
    }

    /// Calls a tool with arguments that match its schema.
    pub async fn call(&self, tool: &OfferedTool, arguments: Arguments) -> Result<Outcome, CallError> {
        if let Some(why) = tool.state.reason() {
            return Err(CallError::NotOffered { tool: tool.definition.name.clone(), why: why.to_owned() });
        }
        if let ServerState::Failed(why) = self.settled().await {
            return Err(CallError::Unavailable { server: self.config.name.clone(), why });
        }
        let peer = self.live.read().unwrap_or_else(PoisonError::into_inner).peer.clone();
        let Some(peer) = peer else {
            let why = "it is being started again".to_owned();
            return Err(CallError::Unavailable { server: self.config.name.clone(), why });
        };
        let outcome = connection::call(&peer, &self.config, &tool.definition.name, arguments).await;
        match &outcome {
            Err(CallError::TimedOut { .. }) => {
                if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
                    self.stuck.notify_one();
                }
            }
            _ => self.timeouts.store(0, Ordering::Relaxed),
        }
        outcome
    }

    /// The tool of a name, where it may be called.
    pub fn find(&self, is_named: impl Fn(&OfferedTool) -> bool) -> Option<OfferedTool> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.tools.iter().find(|tool| is_named(tool)).cloned()
    }
}

/// The tools that may be called.
pub fn offered(tools: Vec<OfferedTool>) -> impl Iterator<Item = OfferedTool> {
    tools.into_iter().filter(|tool| tool.state == ToolState::Offered)
}

/// Shared by its supervisor and its callers.
pub type SharedServer = Arc<Server>;
