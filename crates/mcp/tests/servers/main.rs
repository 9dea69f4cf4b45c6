//! Servers that are started and called. They are programs of this repository, and some are hostile.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod calls;
mod hostile;
mod over_http;
mod processes;

use std::time::Duration;

use omnibus_mcp::{Arguments, CallError, Config, Outcome, ServerState, ServerStatus, Servers};
use omnibus_testing::mcp::configuration;
use serde_json::{Value, json};

/// Longer than anything takes here.
pub const LONG: Duration = Duration::from_secs(120);

/// A client of URLs.
fn http() -> reqwest::Client {
    // A second provider is not installed, and the first one serves as well.
    _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Starts servers and waits until each is ready or has failed.
pub async fn servers(entries: &[(&str, Value)]) -> Servers {
    let config = Config::read(&configuration(entries, json!({})), &|_| None).unwrap();
    let servers = Servers::start(config, &http()).unwrap();
    servers.settled(LONG).await;
    servers
}

/// Starts one server.
pub async fn server(entry: Value) -> Servers {
    servers(&[("s", entry)]).await
}

/// Calls a tool of the server `s`.
pub async fn call(servers: &Servers, tool: &str, arguments: Value) -> Result<Outcome, CallError> {
    let tool = servers.find(&format!("s/{tool}"))?;
    let arguments = Arguments::read(&arguments.to_string(), &tool.definition.schema)?;
    servers.call(&tool, arguments).await
}

pub async fn text(servers: &Servers, tool: &str, arguments: Value) -> String {
    call(servers, tool, arguments)
        .await
        .map_or_else(|error| format!("error: {error}"), |outcome| outcome.text)
}

pub fn status(servers: &Servers) -> ServerStatus {
    servers.statuses().into_iter().find(|status| status.name == "s").unwrap()
}

/// Why the server `s` failed.
pub fn failure(servers: &Servers) -> String {
    match status(servers).state {
        ServerState::Failed(why) => why,
        state => panic!("it is {}", state.name()),
    }
}

/// Waits until something is so.
pub async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("it becomes so");
}
