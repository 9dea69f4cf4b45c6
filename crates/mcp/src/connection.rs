//! A connection to a server, of either generation of the protocol, and a call through it.
//!
//! Invariant: a call ends within its time, whether or not the server reads and answers. What is dropped is cancelled at the
//! server.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
    ProtocolVersion,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, ServiceError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::approval::Rule;
use crate::arguments::Arguments;
use crate::bounded_client::BoundedClient;
use crate::definition::Definition;
use crate::dropped_transport::DroppedTransport;
use crate::error::CallError;
use crate::guard::LINE_BYTES_MAX;
use crate::listing::{self, OfferedTool};
use crate::outcome::Outcome;
use crate::pins::Pins;
use crate::place::{Place, ServerConfig};
use crate::plain_text::plain;
use crate::process::{Process, Start};
use crate::secrets::Secrets;

/// Most characters of what a server says about a failure.
const REASON_CHARS_MAX: usize = 500;

/// A connection. The server is disconnected when this is dropped.
pub struct Connection {
    peer: Peer<RoleClient>,
    /// Ends when the server does.
    service: AbortOnDropHandle,
    process: Option<Process>,
    /// Requests over HTTP end with it.
    _open: watch::Sender<()>,
}

/// A task that ends with this.
struct AbortOnDropHandle(JoinHandle<()>);

impl Drop for AbortOnDropHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Notes that tools changed. Requests of the server are declined.
pub struct Handler {
    changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        // One permit is kept, however often it comes.
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("mlx-omnibus", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }
}

impl Connection {
    /// Connects to a server: starts its process, or calls its URL with `client`.
    pub async fn open(
        config: &ServerConfig,
        client: &reqwest::Client,
        changed: Arc<Notify>,
    ) -> Result<Self, String> {
        let secrets = config.place.secrets();
        let handler = Handler { changed };
        let (open, is_open) = watch::channel(());
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        match &config.place {
            Place::Process { command, args, env, folder, limits, sandbox } => {
                let start =
                    Start { command, args, env, folder: folder.as_deref(), limits: *limits, rules: sandbox };
                let (mut process, pipes) = Process::start(&start)?;
                match handler.serve_with_lifecycle(pipes, lifecycle).await {
                    Ok(service) => Ok(Self::new(service, Some(process), open)),
                    Err(error) => {
                        let why = reason(&error.to_string(), &secrets);
                        Err(format!("{} ({why})", process.end(&secrets).await))
                    }
                }
            }
            Place::Http { url, headers } => {
                let client = BoundedClient {
                    inner: client.clone(),
                    call: config.timeout,
                    other: config.start_timeout,
                    open: is_open,
                };
                let transport = transport(url, headers, client)?;
                let transport = DroppedTransport::new(transport);
                let service = handler.serve_with_lifecycle(transport, lifecycle).await;
                let service = service.map_err(|error| reason(&chain(&error), &secrets))?;
                Ok(Self::new(service, None, open))
            }
        }
    }

    fn new(
        service: RunningService<RoleClient, Handler>,
        process: Option<Process>,
        open: watch::Sender<()>,
    ) -> Self {
        let peer = service.peer().clone();
        let service = tokio::spawn(async move {
            _ = service.waiting().await;
        });
        Self { peer, service: AbortOnDropHandle(service), process, _open: open }
    }

    /// What calls go through.
    pub fn peer(&self) -> Peer<RoleClient> {
        self.peer.clone()
    }

    /// The version of the protocol.
    pub fn protocol(&self) -> String {
        self.peer.peer_info().map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// What confines the process.
    pub fn sandbox(&self) -> String {
        self.process
            .as_ref()
            .map_or_else(|| "none (it is remote)".to_owned(), |process| process.sandbox().name())
    }

    /// Waits until the server ends the connection.
    pub async fn closed(&mut self) {
        _ = (&mut self.service.0).await;
    }

    /// Ends the connection and the process. Says why it ended.
    pub async fn end(self, secrets: &Secrets) -> String {
        // Its input is closed with the service.
        drop(self.service);
        match self.process {
            Some(mut process) => process.end(secrets).await,
            None => "it closed the connection".to_owned(),
        }
    }
}

fn transport(
    url: &str,
    headers: &std::collections::BTreeMap<String, String>,
    client: BoundedClient,
) -> Result<StreamableHttpClientTransport<BoundedClient>, String> {
    let header = |(name, value): (&String, &String)| {
        let wrong = || format!("`headers.{name}` is not a header");
        let name = HeaderName::try_from(name).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((name, value))
    };
    let headers = headers.iter().map(header).collect::<Result<HashMap<_, _>, String>>()?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(LINE_BYTES_MAX)
        .max_json_response_size(LINE_BYTES_MAX)
        .reinit_on_expired_session(true);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let line = next.to_string();
        if !text.contains(&line) {
            text = format!("{text}: {line}");
        }
        cause = next.source();
    }
    text
}

/// What a server or a transport says, without secrets and hidden characters.
fn reason(text: &str, secrets: &Secrets) -> String {
    let text = plain(&secrets.redacted(text)).replace('\n', " ");
    text.chars().take(REASON_CHARS_MAX).collect()
}

/// Calls a tool.
pub async fn call(
    peer: &Peer<RoleClient>,
    config: &ServerConfig,
    tool: &str,
    arguments: Arguments,
) -> Result<Outcome, CallError> {
    let server = || config.name.clone();
    let refused = |why: String| CallError::Refused { server: server(), why };
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.0);
    let answer = tokio::time::timeout(config.timeout, peer.call_tool_once(params)).await;
    let Ok(answer) = answer else {
        return Err(CallError::TimedOut { server: server(), seconds: config.timeout.as_secs_f64() });
    };
    match answer {
        Ok(CallToolResponse::Complete(result)) => Ok(Outcome::of(result, config.result_bytes)),
        Ok(CallToolResponse::InputRequired(_)) => {
            Err(refused("it wants input of a user, which this server cannot give".to_owned()))
        }
        Ok(_) => Err(refused("it answers with a task, which is not supported".to_owned())),
        Err(ServiceError::TransportClosed | ServiceError::TransportSend(_)) => Err(CallError::Unavailable {
            server: server(),
            why: "the connection ended during the call".to_owned(),
        }),
        Err(ServiceError::McpError(error)) => Err(refused(reason(&error.message, &config.place.secrets()))),
        Err(error) => Err(refused(reason(&chain(&error), &config.place.secrets()))),
    }
}

/// A server that a request names, connected for that request.
pub struct RemoteServer {
    config: ServerConfig,
    connection: Connection,
    tools: Vec<OfferedTool>,
}

impl RemoteServer {
    /// Connects with a client that goes where the operator allows, and lists the tools.
    pub async fn connect(config: ServerConfig, client: &reqwest::Client) -> Result<Self, CallError> {
        let unavailable = |why: String| CallError::Unavailable { server: config.name.clone(), why };
        let opened = async {
            let connection = Connection::open(&config, client, Arc::default()).await?;
            let tools = listing::list(&connection.peer()).await?;
            Ok::<_, String>((connection, tools))
        };
        let opened = tokio::time::timeout(config.start_timeout, opened).await;
        let late = || format!("it did not list its tools within {} s", config.start_timeout.as_secs_f64());
        let (connection, tools) = opened.map_err(|_| unavailable(late()))?.map_err(unavailable)?;
        let pins = Pins::default();
        pins.note(&config.name, &tools);
        let tools = listing::offer(&config, &pins, tools);
        Ok(Self { tools, connection, config })
    }

    /// Its tools.
    pub fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &Definition, arguments: Arguments) -> Result<Outcome, CallError> {
        call(&self.connection.peer(), &self.config, &tool.name, arguments).await
    }

    /// Whether calls of a tool need an approval.
    pub fn rule(&self, tool: &str) -> Rule {
        self.config.approval.rule(tool)
    }
}
