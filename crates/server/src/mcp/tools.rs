//! The tools of MCP servers that one request has.

use std::sync::Arc;

use omnibus_engine::{CallLimit, Input, OutputMode, Request, Tool};
use omnibus_mcp::{Arguments, CallError, Definition, OfferedTool, Outcome, RemoteServer, Rule, ServerState};
use serde_json::{Value, json};

use super::{Mcp, SharedMcp, not_allowed};
use crate::engine::{Engine, ModelName};
use crate::error::ApiError;
use crate::keys::Key;
use crate::response::ListedServer;
use crate::wire::mcp::McpServer;

/// A tool of a request.
#[derive(Clone)]
pub struct ServerTool {
    /// The name by which the model knows it.
    pub offered: String,
    /// The server's name for the client.
    pub label: String,
    /// What it is.
    pub definition: Arc<Definition>,
    /// Whether its calls need an approval.
    pub needs_approval: bool,
    source: Source,
}

/// Who runs a tool.
#[derive(Clone)]
enum Source {
    Configured(SharedMcp, Box<OfferedTool>),
    Remote(Arc<RemoteServer>),
}

/// Which tools a request names.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Servers that it names.
    pub servers: &'a [McpServer],
    /// Whether it gets those of the configuration.
    pub auto: bool,
    /// Whether the API can wait for approvals.
    pub approvals: bool,
}

/// All tools of a request that this server runs, in the order of the request.
#[derive(Clone, Default)]
pub struct ServerTools(Vec<ServerTool>);

impl ServerTool {
    fn configured(mcp: &SharedMcp, tool: OfferedTool) -> Self {
        Self {
            offered: tool.offered.clone(),
            label: tool.server.clone(),
            definition: Arc::clone(&tool.definition),
            needs_approval: tool.rule == Rule::Always,
            source: Source::Configured(Arc::clone(mcp), Box::new(tool)),
        }
    }

    /// Calls it.
    pub async fn call(&self, arguments: Arguments) -> Result<Outcome, CallError> {
        match &self.source {
            Source::Configured(mcp, tool) => mcp.servers().call(tool, arguments).await,
            Source::Remote(server) => server.call(&self.definition, arguments).await,
        }
    }

    /// What the model knows of it.
    fn function(&self) -> Tool {
        let parameters = Value::Object(self.definition.schema.clone());
        Tool::new(self.offered.clone(), self.definition.description.clone(), parameters)
    }

    /// As OpenAI's API lists it.
    fn listed(&self) -> Value {
        json!({
            "name": self.definition.name,
            "description": self.definition.description,
            "input_schema": self.definition.schema,
            "annotations": self.definition.annotations,
        })
    }
}

impl ServerTools {
    /// The tools that a request names. Connects to servers at URLs: not for an async thread. Fails with the field of a
    /// server that there is not, and of a tool that cannot be had.
    pub fn of(mcp: Option<&SharedMcp>, asked: Asked<'_>, key: &Key) -> Result<Self, ApiError> {
        let mut tools = Vec::new();
        if let Some(mcp) = mcp.filter(|_| asked.auto || !asked.servers.is_empty()) {
            mcp.wait_for_first_lists()?;
        }
        if asked.auto {
            let mcp = mcp.ok_or_else(|| not_configured("tools"))?;
            tools.extend(auto(mcp, key));
        }
        for server in asked.servers {
            let found = match &server.remote {
                Some(_) => remote(mcp, server, key)?,
                None => configured(mcp, server, key)?,
            };
            if let Some(tool) = found.iter().find(|tool| tool.needs_approval && !asked.approvals) {
                let name = &tool.definition.name;
                let message = format!(
                    "`{}`: calls of the tool `{name}` need an approval, which only /v1/responses has; leave it out with `allowed_tools`, or allow it in the configuration",
                    server.at
                );
                return Err(ApiError::invalid(&server.at, message));
            }
            tools.extend(found);
        }
        Ok(Self(tools))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tool that the model knows by a name.
    pub fn find(&self, name: &str) -> Option<&ServerTool> {
        self.0.iter().find(|tool| tool.offered == name)
    }

    /// The tool of a server.
    pub fn of_server(&self, label: &str, name: &str) -> Option<&ServerTool> {
        self.0.iter().find(|tool| tool.label == label && tool.definition.name == name)
    }

    /// Keeps the tools that a request allows.
    pub fn retain(&mut self, allows: impl Fn(&str) -> bool) {
        self.0.retain(|tool| allows(&tool.offered));
    }

    /// The names by which the model knows them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tool| tool.offered.as_str())
    }

    /// Adds them to a request, behind its own tools, which keep their names. A definition that spells a token which steers the
    /// model is left out.
    pub fn add_to(
        &mut self,
        request: &mut Request,
        limit: CallLimit,
        engine: &dyn Engine,
    ) -> Result<(), ApiError> {
        let model = request.model.clone();
        let Input::Chat(chat) = &mut request.input else { return Ok(()) };
        self.0.retain(|tool| chat.tools.iter().all(|own| own.name != tool.offered));
        let mut plain = Vec::with_capacity(self.0.len());
        for tool in std::mem::take(&mut self.0) {
            if is_plain(&tool, model.as_deref(), engine)? {
                plain.push(tool);
            } else {
                tracing::warn!(
                    server = tool.label,
                    tool = tool.definition.name,
                    "the definition of a tool spells special tokens"
                );
            }
        }
        self.0 = plain;
        chat.tools.extend(self.0.iter().map(ServerTool::function));
        if !chat.tools.is_empty() && matches!(request.output, OutputMode::Message { calls: None }) {
            request.output = OutputMode::Message { calls: Some(limit) };
        }
        Ok(())
    }

    /// The tools by server, in the order of the request.
    pub fn listed(&self) -> Vec<ListedServer> {
        let mut servers: Vec<ListedServer> = Vec::new();
        for tool in &self.0 {
            match servers.iter_mut().find(|server| server.label == tool.label) {
                Some(server) => server.tools.push(tool.listed()),
                None => servers.push(ListedServer { label: tool.label.clone(), tools: vec![tool.listed()] }),
            }
        }
        servers
    }
}

/// Whether a definition has no token that steers the model.
fn is_plain(tool: &ServerTool, model: ModelName<'_>, engine: &dyn Engine) -> Result<bool, ApiError> {
    let text = tool.function().function().to_string();
    Ok(engine.without_markers(model, &text)? == text)
}

/// The tools of the configuration's `auto` that the key may use and that need no approval.
fn auto(mcp: &SharedMcp, key: &Key) -> Vec<ServerTool> {
    let selectors = &mcp.servers().config().auto;
    let is_auto = |tool: &OfferedTool| {
        let name = &tool.definition.name;
        let is_selected = selectors.iter().any(|selector| selector.selects(&tool.server, name));
        is_selected && tool.rule == Rule::Never && key.may_call(&tool.server, name)
    };
    mcp.servers().tools().into_iter().filter(is_auto).map(|tool| ServerTool::configured(mcp, tool)).collect()
}

fn configured(mcp: Option<&SharedMcp>, server: &McpServer, key: &Key) -> Result<Vec<ServerTool>, ApiError> {
    let at = format!("{}.server_label", server.at);
    let mcp = mcp.ok_or_else(|| not_configured(&at))?;
    let unknown = || {
        let label = &server.label;
        let message = format!(
            "`{at}` names `{label}`, which is no server of --mcp-config; a server of the request needs `server_url`"
        );
        ApiError::invalid(&at, message)
    };
    let status = mcp
        .servers()
        .statuses()
        .into_iter()
        .find(|status| status.name == server.label)
        .ok_or_else(unknown)?;
    if let (ServerState::Failed(why), true) = (&status.state, status.tools.is_empty()) {
        return Err(ApiError::unavailable(format!(
            "the MCP server `{}` is not available: {why}",
            server.label
        )));
    }
    check_names(server, |name| status.tools.iter().any(|tool| tool.definition.name == name))?;
    let may_use = |tool: &OfferedTool| {
        let definition = &tool.definition;
        tool.server == server.label
            && server.allowed.selects(&definition.name, definition.is_read_only())
            && key.may_call(&tool.server, &definition.name)
    };
    let tool = |tool: OfferedTool| {
        let is_needed = server.approval.is_needed(&tool.definition.name, tool.definition.is_read_only());
        let tool = ServerTool::configured(mcp, tool);
        ServerTool { needs_approval: tool.needs_approval || is_needed, ..tool }
    };
    Ok(mcp.servers().tools().into_iter().filter(may_use).map(tool).collect())
}

fn remote(mcp: Option<&SharedMcp>, server: &McpServer, key: &Key) -> Result<Vec<ServerTool>, ApiError> {
    let Some(place) = &server.remote else { return Ok(Vec::new()) };
    let at = format!("{}.server_url", server.at);
    let mcp: &Mcp = mcp.ok_or_else(|| not_allowed(&at))?;
    if !key.may_name_servers() {
        let message = format!("the key `{}` may not use MCP servers of requests", key.name);
        return Err(ApiError::forbidden("tool_not_allowed", message).with_param(at));
    }
    if mcp.servers().has(&server.label) {
        let at = format!("{}.server_label", server.at);
        return Err(ApiError::invalid(
            &at,
            format!(
                "`{at}` is the name of a configured server; leave out `server_url`, or choose another label"
            ),
        ));
    }
    let connected = Arc::new(mcp.connect(&server.label, &server.at, place)?);
    check_names(server, |name| connected.tools().iter().any(|tool| tool.definition.name == name))?;
    let is_meant =
        |tool: &&OfferedTool| server.allowed.selects(&tool.definition.name, tool.definition.is_read_only());
    let tool = |tool: &OfferedTool| ServerTool {
        offered: tool.offered.clone(),
        label: server.label.clone(),
        definition: Arc::clone(&tool.definition),
        needs_approval: server.approval.is_needed(&tool.definition.name, tool.definition.is_read_only()),
        source: Source::Remote(Arc::clone(&connected)),
    };
    Ok(connected.tools().iter().filter(is_meant).map(tool).collect())
}

/// Fails with a tool that a request allows and a server has not.
fn check_names(server: &McpServer, has: impl Fn(&str) -> bool) -> Result<(), ApiError> {
    match server.allowed.names.iter().flatten().find(|name| !has(name)) {
        None => Ok(()),
        Some(name) => {
            let at = format!("{}.allowed_tools", server.at);
            Err(ApiError::invalid(
                &at,
                format!("`{at}` has `{name}`, which the server `{}` has not", server.label),
            ))
        }
    }
}

fn not_configured(at: &str) -> ApiError {
    ApiError::unsupported(
        at,
        format!("`{at}` is not supported: this server was started without --mcp-config"),
    )
}
