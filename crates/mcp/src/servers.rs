//! All configured servers. They are started at once, and none waits for another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::arguments::Arguments;
use crate::config::Config;
use crate::error::{CallError, ConfigError};
use crate::listing::OfferedTool;
use crate::outcome::Outcome;
use crate::pins::Pins;
use crate::server::{Server, ServerStatus, SharedServer, offered};
use crate::supervisor::supervise;

/// The configured servers, running as long as this is there.
pub struct Servers {
    config: Config,
    servers: BTreeMap<String, SharedServer>,
    /// Dropped with this, which ends the processes.
    _supervisors: JoinSet<()>,
}

impl Servers {
    /// Starts the servers of a configuration, inside of a runtime. `client` calls those at URLs.
    pub fn start(config: Config, client: &reqwest::Client) -> Result<Self, ConfigError> {
        let pins = config.pins.as_deref().map(Pins::load).transpose()?.unwrap_or_default();
        let pins = Arc::new(pins);
        let mut supervisors = JoinSet::new();
        let start = |(name, server): (&String, &crate::place::ServerConfig)| {
            let server = Arc::new(Server::new(server.clone()));
            supervisors.spawn(supervise(Arc::clone(&server), Arc::clone(&pins), client.clone()));
            (name.clone(), server)
        };
        let servers = config.servers.iter().map(start).collect();
        Ok(Self { config, servers, _supervisors: supervisors })
    }

    /// What holds for all of them.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Waits until each is ready or has failed, but no longer than this.
    pub async fn settled(&self, longest: Duration) {
        let all = async {
            for server in self.servers.values() {
                server.settled().await;
            }
        };
        _ = tokio::time::timeout(longest, all).await;
    }

    /// Waits for those that are started for the first time, and whose tools are not known yet, but no longer than this.
    pub async fn started(&self, longest: Duration) {
        let all = async {
            for server in self.servers.values().filter(|server| server.is_new()) {
                server.settled().await;
            }
        };
        _ = tokio::time::timeout(longest, all).await;
    }

    /// All servers, in the order of their names.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.servers.values().map(|server| server.status()).collect()
    }

    /// The tools that may be called, in the order of their servers' names, then as listed: a prompt with them stays the same.
    pub fn tools(&self) -> Vec<OfferedTool> {
        self.servers.values().flat_map(|server| offered(server.tools())).collect()
    }

    /// Whether a server has this name.
    pub fn has(&self, server: &str) -> bool {
        self.servers.contains_key(server)
    }

    /// A tool by the name that models know, or as `server/tool`.
    pub fn find(&self, name: &str) -> Result<OfferedTool, CallError> {
        let is_named = |tool: &OfferedTool| {
            tool.offered == name
                || name.split_once('/') == Some((tool.server.as_str(), tool.definition.name.as_str()))
        };
        let found = self.servers.values().find_map(|server| server.find(is_named));
        found.ok_or_else(|| CallError::Unknown(name.to_owned()))
    }

    /// Calls a tool with arguments that match its schema.
    pub async fn call(&self, tool: &OfferedTool, arguments: Arguments) -> Result<Outcome, CallError> {
        match self.servers.get(&tool.server) {
            Some(server) => server.call(tool, arguments).await,
            None => Err(CallError::Unknown(tool.offered.clone())),
        }
    }
}
