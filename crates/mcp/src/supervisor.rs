//! Keeps a server running: connects, lists its tools again when they change, and starts it again when it fails.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::listing::{self, OfferedTool};
use crate::pins::Pins;
use crate::server::{Connected, Server};

/// Tools are listed again after this time, whether or not the server said that they changed.
const LIST_EVERY: Duration = Duration::from_secs(300);
/// Shortest time between two lists.
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// Runs a server until this is dropped.
pub async fn supervise(server: Arc<Server>, pins: Arc<Pins>, client: reqwest::Client) {
    let mut backoff = Backoff::default();
    loop {
        server.starting();
        let since = Instant::now();
        let why = run(&server, &pins, &client).await;
        tracing::warn!(server = server.config.name, why, "an MCP server failed");
        server.failed(why);
        sleep(backoff.pause(since.elapsed())).await;
    }
}

/// Runs a server until it fails. Says why.
async fn run(server: &Server, pins: &Pins, client: &reqwest::Client) -> String {
    let (config, secrets) = (&server.config, server.config.place.secrets());
    let changed = Arc::new(Notify::new());
    let late = || format!("it did not list its tools within {} s", config.start_timeout.as_secs_f64());
    let opened = timeout(config.start_timeout, Connection::open(config, client, Arc::clone(&changed))).await;
    let mut connection = match opened {
        Ok(Ok(connection)) => connection,
        Ok(Err(why)) => return why,
        Err(_) => return late(),
    };
    let tools = match timeout(config.start_timeout, listed(server, pins, &connection)).await {
        Ok(Ok(tools)) => tools,
        // An end that came first is the better reason.
        Ok(Err(why)) => return format!("{why}; {}", connection.end(&secrets).await),
        Err(_) => return late(),
    };
    let (peer, protocol, sandbox) = (connection.peer(), connection.protocol(), connection.sandbox());
    tracing::info!(server = config.name, tools = tools.len(), protocol, sandbox, "an MCP server is ready");
    server.ready(Connected { peer, tools, protocol, sandbox });
    let why = watch(server, pins, &mut connection, &changed).await;
    let end = connection.end(&secrets).await;
    why.unwrap_or(end)
}

/// Watches a connection. Says why it is given up, unless the server ended it.
async fn watch(
    server: &Server,
    pins: &Pins,
    connection: &mut Connection,
    changed: &Notify,
) -> Option<String> {
    loop {
        tokio::select! {
            () = connection.closed() => return None,
            () = server.stuck.notified() => return Some("it answered no call in time".to_owned()),
            () = changed.notified() => sleep(LIST_PAUSE).await,
            () = sleep(LIST_EVERY) => {}
        }
        match timeout(server.config.timeout, listed(server, pins, connection)).await {
            Ok(Ok(tools)) => server.relisted(tools),
            Ok(Err(_)) if connection.peer().is_transport_closed() => return None,
            Ok(Err(why)) => return Some(why),
            Err(_) => return Some("it did not list its tools in time".to_owned()),
        }
    }
}

async fn listed(server: &Server, pins: &Pins, connection: &Connection) -> Result<Vec<OfferedTool>, String> {
    let tools = listing::list(&connection.peer()).await?;
    pins.note(&server.config.name, &tools);
    let offered = listing::offer(&server.config, pins, tools);
    for tool in offered.iter().filter(|tool| tool.state.reason().is_some()) {
        tracing::debug!(
            server = tool.server,
            tool = tool.definition.name,
            state = tool.state.name(),
            "a tool is not offered"
        );
    }
    Ok(offered)
}
