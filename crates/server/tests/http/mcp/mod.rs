//! Tools of MCP servers that the server runs: scripted models call tools of scripted servers.

mod chat;
mod faults;
mod faulty_server;
mod limits;
mod messages;
mod responses;
mod routes;
mod web_search;

use std::sync::Arc;
use std::time::Duration;

use omnibus_mcp::Config;
use omnibus_server::{Keys, Mcp, Settings};
use omnibus_testing::mcp::{configuration, entry_with};
use serde_json::{Value, json};

use super::client::{Reply, post};
use super::{Server, server_with};

/// A server with MCP servers, which run as long as it does.
pub struct WithTools {
    pub server: Server,
    _runtime: tokio::runtime::Runtime,
}

/// With these MCP servers, and our own settings.
pub fn with(entries: &[(&str, Value)], own: Value) -> WithTools {
    with_settings(entries, own, &[], Settings::default())
}

pub fn with_settings(
    entries: &[(&str, Value)],
    own: Value,
    domains: &[String],
    settings: Settings,
) -> WithTools {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = Config::read(&configuration(entries, own), &|_| None).unwrap();
    let mcp = runtime.block_on(async {
        let mcp = Mcp::start(config, domains).unwrap();
        mcp.servers().settled(Duration::from_secs(120)).await;
        mcp
    });
    let server = server_with(Settings { mcp: Some(Arc::new(mcp)), ..settings });
    WithTools { server, _runtime: runtime }
}

/// With the server `s`, whose tools need no approval, and which are those of `auto`.
pub fn trusted() -> WithTools {
    with(&[("s", trusted_entry())], json!({"auto": ["s"]}))
}

pub fn trusted_entry() -> Value {
    entry_with(&[], json!({"approval": "never", "timeout": 20}))
}

/// With the server `s`, whose tools need approvals.
pub fn careful(own: Value) -> WithTools {
    with(&[("s", entry_with(&[], json!({})))], own)
}

impl WithTools {
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        post(self.server.address, path, &body.to_string())
    }

    /// A successful answer.
    pub fn answer(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }
}

/// The keys of a file with this text.
pub fn keys(text: &str) -> Keys {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    std::fs::write(&path, text).unwrap();
    Keys::read(Vec::new(), Some(path), omnibus_server::Clock::default()).unwrap()
}
