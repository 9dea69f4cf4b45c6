//! Tools of MCP servers, which this server runs for requests: above the APIs, each of which shows calls and results in its own
//! format.
//!
//! Invariants: a server is one of the configuration, or at a URL that the operator allows. A call is made within its key's
//! tools, its approvals and the limits of its request. A result is data: none of its text becomes a token that steers a model.

mod approvals;
mod calls;
mod rounds;
mod search;
mod tools;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use omnibus_mcp::{Approval, CallError, Config, Place, RemoteServer, Rule, ServerConfig, Servers};
use reqwest::Url;

pub use approvals::{ApprovedCall, PendingCall, PendingCalls};
pub use rounds::{Events, Generations, Loop, NextGeneration, start};
pub use tools::{Approvals, Asked, ServerTools};

use crate::error::ApiError;
use crate::outbound::Outbound;
use crate::wire::mcp::RemotePlace;

/// Longest time that a request waits for servers that are started for the first time.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// Longest time until a server of a request has listed its tools.
const REMOTE_START: Duration = Duration::from_secs(15);
/// Longest time of a call of a server of a request.
const REMOTE_CALL: Duration = Duration::from_secs(30);
/// Most bytes of a result of such a server.
const REMOTE_RESULT_BYTES: usize = 100_000;

/// The MCP servers of this server.
pub struct Mcp {
    servers: Servers,
    /// Where servers of requests may be.
    urls: Outbound,
    /// Calls that wait for an approval.
    pub approvals: PendingCalls,
}

impl fmt::Debug for Mcp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Mcp")
    }
}

impl Mcp {
    /// Starts the servers of a configuration, inside of a runtime. Requests may name servers at these domains. Fails with a
    /// line.
    pub fn start(config: Config, domains: &[String]) -> Result<Self, String> {
        crate::crypto::install();
        let urls = Outbound::new(domains).map_err(|why| format!("--allow-mcp-url: {why}"))?;
        // A redirect would send the headers, which have secrets, to elsewhere.
        let client = reqwest::Client::builder()
            .user_agent(concat!("mlx-omnibus/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        let approvals = PendingCalls::new(config.approval_timeout);
        let servers = Servers::start(config, &client).map_err(|error| error.to_string())?;
        Ok(Self { servers, urls, approvals })
    }

    /// The configured servers.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Waits for servers that were just started. Takes seconds: not for an async thread.
    fn wait_for_first_lists(&self) -> Result<(), ApiError> {
        runtime()?.block_on(self.servers.started(FIRST_LISTS));
        Ok(())
    }

    /// Connects to the server of a request, whose field is `at`. Takes seconds: not for an async thread, but for one that a
    /// runtime started.
    fn connect(&self, label: &str, at: &str, place: &RemotePlace) -> Result<RemoteServer, ApiError> {
        let at = format!("{at}.server_url");
        let fail = |why: String| ApiError::invalid(&at, format!("`{at}` {why}"));
        if self.urls.is_empty() {
            return Err(not_allowed(&at));
        }
        let url = Url::parse(&place.url).map_err(|error| fail(format!("is not a valid URL: {error}")))?;
        let runtime = runtime()?;
        let client = runtime.block_on(self.urls.client(&url)).map_err(fail)?;
        let headers: BTreeMap<String, String> = place.headers.clone();
        let config = ServerConfig {
            name: label.to_owned(),
            place: Place::Http { url: place.url.clone(), headers },
            // The request says which of its own tools need one.
            approval: Approval::of_all(Rule::Never),
            allowed: None,
            timeout: REMOTE_CALL,
            start_timeout: REMOTE_START,
            result_bytes: REMOTE_RESULT_BYTES,
        };
        runtime
            .block_on(RemoteServer::connect(config, &client))
            .map_err(|error| fail(format!("has no tools: {error}")))
    }
}

fn runtime() -> Result<tokio::runtime::Handle, ApiError> {
    tokio::runtime::Handle::try_current().map_err(|_| ApiError::internal("there is no runtime"))
}

/// A server of a request where none is allowed.
pub(crate) fn not_allowed(at: &str) -> ApiError {
    let message = format!("`{at}` is not supported: this server was started without --allow-mcp-url");
    ApiError::unsupported(at, message)
}

/// Why a call has no result, as an error of the route that makes calls.
pub fn call_error(error: &CallError) -> ApiError {
    let message = error.to_string();
    match error {
        CallError::Unknown(_) => ApiError::not_found(message),
        CallError::NotOffered { .. } => ApiError::forbidden("tool_not_offered", message),
        CallError::Arguments(_) => ApiError::invalid("arguments", message),
        CallError::Unavailable { .. } => ApiError::unavailable(message),
        CallError::TimedOut { .. } | CallError::Refused { .. } => ApiError::unavailable(message),
    }
}

/// A server with tools, for APIs that need one.
pub type SharedMcp = Arc<Mcp>;
