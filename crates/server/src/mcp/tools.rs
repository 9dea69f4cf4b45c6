//! The tools of MCP servers that one request has.

use std::sync::Arc;

use omnibus_engine::{CallLimit, Input, OutputMode, Request, Tool};
use omnibus_mcp::web_search::{self, SearchRules, WEB_SEARCH};
use omnibus_mcp::{Arguments, CallError, Definition, OfferedTool, Outcome, RemoteServer, Rule, ServerState};
use serde_json::{Value, json};

use super::approvals::{ApprovedCall, PendingCall};
use super::{Mcp, REMOTE_RESULT_BYTES, SharedMcp, not_allowed, search};
use crate::engine::{Engine, ModelName};
use crate::error::ApiError;
use crate::keys::Key;
use crate::response::ListedServer;
use crate::wire::mcp::McpServer;
use crate::wire::web_search::WebSearch;

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
    /// What holds for it where it is the search of the web.
    search: Option<SearchRules>,
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
    /// Whether its client can approve calls.
    pub approvals: Approvals,
    /// The search of the web, if it names one.
    pub search: Option<&'a WebSearch>,
}

/// Whether a client can approve calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approvals {
    /// It can: the response ends with a call that waits.
    Possible,
    /// It cannot: tools that need an approval are not for its request.
    Impossible,
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
            search: None,
        }
    }

    /// The search of the web.
    fn searching(mcp: &SharedMcp, tool: OfferedTool, rules: SearchRules) -> Self {
        let offered = WEB_SEARCH.to_owned();
        Self { offered, search: Some(rules), ..Self::configured(mcp, tool) }
    }

    /// What holds for it where it is the search of the web.
    pub fn search(&self) -> Option<&SearchRules> {
        self.search.as_ref()
    }

    /// Reads the arguments of a call that a model made.
    pub fn arguments(&self, json: &str) -> Result<Arguments, CallError> {
        match &self.search {
            Some(_) => Arguments::read(json, &web_search::schema()),
            None => Arguments::read(json, &self.definition.schema),
        }
    }

    /// Calls it.
    pub async fn call(&self, arguments: Arguments) -> Result<Outcome, CallError> {
        let Some(rules) = &self.search else { return self.call_server(arguments).await };
        let arguments = web_search::arguments(&arguments, &self.definition.schema)?;
        let found = rules.found(self.call_server(arguments).await?);
        Ok(found.within(self.result_bytes()))
    }

    async fn call_server(&self, arguments: Arguments) -> Result<Outcome, CallError> {
        match &self.source {
            Source::Configured(mcp, tool) => mcp.servers().call(tool, arguments).await,
            Source::Remote(server) => server.call(&self.definition, arguments).await,
        }
    }

    /// Most bytes of a result.
    fn result_bytes(&self) -> usize {
        let configured = match &self.source {
            Source::Configured(mcp, tool) => mcp.servers().config().servers.get(&tool.server),
            Source::Remote(_) => None,
        };
        configured.map_or(REMOTE_RESULT_BYTES, |server| server.result_bytes)
    }

    /// What the model knows of it.
    fn function(&self) -> Tool {
        if self.search.is_some() {
            return search::function();
        }
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
        if let Some(mcp) = mcp.filter(|_| asked.auto || !asked.servers.is_empty() || asked.search.is_some()) {
            mcp.wait_for_first_lists()?;
        }
        if asked.auto {
            let mcp = mcp.ok_or_else(|| not_configured("tools"))?;
            tools.extend(auto(mcp, asked.approvals, key));
        }
        for server in asked.servers {
            let found = match &server.remote {
                Some(_) => remote(mcp, server, key)?,
                None => configured(mcp, server, key)?,
            };
            if let Some(tool) =
                found.iter().find(|tool| tool.needs_approval && asked.approvals == Approvals::Impossible)
            {
                let name = &tool.definition.name;
                let message = format!(
                    "`{}`: calls of the tool `{name}` need an approval, which only /v1/responses has; leave it out with `allowed_tools`, or allow it in the configuration",
                    server.at
                );
                return Err(ApiError::invalid(&server.at, message));
            }
            tools.extend(found);
        }
        if let Some(wanted) = asked.search {
            let found = search::tool(mcp, wanted, key)?;
            let rules = || wanted.rules.clone();
            tools.extend(found.and_then(|tool| Some(ServerTool::searching(mcp?, tool, rules()))));
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
    fn of_server(&self, label: &str, name: &str) -> Option<&ServerTool> {
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

    /// Calls that were approved. Fails where the tool of one is none of these, or has changed since the call was shown.
    pub fn check_approved(
        &self,
        calls: Vec<(ApprovedCall, PendingCall)>,
    ) -> Result<Vec<ApprovedCall>, ApiError> {
        let check = |(call, pending): (ApprovedCall, PendingCall)| {
            let tool = self.of_server(&pending.label, &pending.tool);
            match tool.filter(|tool| tool.definition.hash == pending.hash) {
                Some(_) => Ok(call),
                None => {
                    let message = format!(
                        "the tool `{}` of the MCP server `{}` is not in `tools`, or has changed since its call was shown",
                        pending.tool, pending.label
                    );
                    Err(ApiError::invalid("tools", message))
                }
            }
        };
        calls.into_iter().map(check).collect()
    }

    /// The tools by server, in the order of the request.
    pub fn listed(&self) -> Vec<ListedServer> {
        let mut servers: Vec<ListedServer> = Vec::new();
        for tool in self.0.iter().filter(|tool| tool.search.is_none()) {
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

/// The tools of the configuration's `auto` that the key may use; those that need an approval where its client can give one.
fn auto(mcp: &SharedMcp, approvals: Approvals, key: &Key) -> Vec<ServerTool> {
    let selectors = &mcp.servers().config().auto;
    let is_auto = |tool: &OfferedTool| {
        let name = &tool.definition.name;
        let is_selected = selectors.iter().any(|selector| selector.selects(&tool.server, name));
        let is_usable = tool.rule == Rule::Never || approvals == Approvals::Possible;
        is_selected && is_usable && key.may_call(&tool.server, name)
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
        search: None,
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
