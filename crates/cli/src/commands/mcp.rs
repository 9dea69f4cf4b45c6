//! `omnibus mcp`: the tools of MCP servers, listed and called without a model; and the servers of `omnibus serve`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use omnibus_mcp::{Arguments, Config as McpConfig, Definition, Outcome, Pins, ServerState, ServerStatus};
use omnibus_server::Mcp;
use serde_json::{Value, json};

use crate::completion_output::runtime;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, McpSettings, Output, Pinning};

/// Longest time until all servers have started; each has a limit of its own, too.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Digits of a hash in the list.
const HASH_DIGITS: usize = 12;

/// The MCP servers of a server, which start in the background; `None` without any settings.
pub fn start(settings: &McpSettings) -> Result<Option<Arc<Mcp>>, Error> {
    let config = match &settings.file {
        Some(path) => {
            McpConfig::load(path).map_err(|error| Error::usage(format!("--mcp-config: {error}")))?
        }
        None if settings.domains.is_empty() => return Ok(None),
        None => McpConfig::read("{\"mcpServers\": {}}", &|_| None).map_err(Error::failed)?,
    };
    Mcp::start(config, &settings.domains).map(|mcp| Some(Arc::new(mcp))).map_err(Error::usage)
}

/// Lists the servers and their tools, and pins the definitions where that is wanted.
pub fn list(config: &Config) -> Result<ExitCode, Error> {
    let mcp_config = load(config)?;
    let pins = mcp_config.pins.clone();
    let statuses = runtime()?.block_on(async {
        let mcp = Mcp::start(mcp_config, &[]).map_err(Error::failed)?;
        mcp.servers().settled(START_TIMEOUT).await;
        Ok::<_, Error>(mcp.servers().statuses())
    })?;
    if config.mcp.pinning == Pinning::Write {
        let path = pins.ok_or_else(|| Error::usage("there is no file of pins"))?;
        pin(&path, &statuses)?;
        output::note(format!("the definitions are pinned in {}", path.display()));
    }
    match config.output {
        Output::Json => output::line(Value::Array(statuses.iter().map(as_json).collect()).to_string()),
        Output::Text => statuses.iter().for_each(print),
    }
    let has_failed = statuses.iter().any(|status| status.state != ServerState::Ready);
    Ok(ExitCode::from(u8::from(has_failed)))
}

fn load(config: &Config) -> Result<McpConfig, Error> {
    let path =
        config.mcp.file.as_ref().ok_or_else(|| Error::usage("missing servers: pass --mcp-config FILE"))?;
    McpConfig::load(path).map_err(|error| Error::usage(format!("--mcp-config: {error}")))
}

/// Pins what all servers list. One that failed would lose its pins.
fn pin(path: &std::path::Path, statuses: &[ServerStatus]) -> Result<(), Error> {
    for status in statuses {
        if let ServerState::Failed(why) = &status.state {
            return Err(Error::failed(format!(
                "nothing is pinned: the server {} failed: {why}",
                status.name
            )));
        }
    }
    let all: Vec<(&str, Vec<Definition>)> = statuses
        .iter()
        .map(|status| {
            let tools = status.tools.iter().map(|tool| (*tool.definition).clone()).collect();
            (status.name.as_str(), tools)
        })
        .collect();
    Pins::write(path, all.iter().map(|(name, tools)| (*name, tools.as_slice()))).map_err(Error::failed)
}

fn as_json(status: &ServerStatus) -> Value {
    let tools: Vec<Value> = status
        .tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.offered,
                "tool": tool.definition.name,
                "description": tool.definition.description,
                "parameters": tool.definition.schema,
                "hash": tool.definition.hash,
                "approval": tool.rule.name(),
                "state": tool.state.name(),
            })
        })
        .collect();
    let error = match &status.state {
        ServerState::Failed(why) => Some(why),
        ServerState::Starting | ServerState::Ready => None,
    };
    json!({
        "server": status.name,
        "state": status.state.name(),
        "error": error,
        "transport": status.transport,
        "protocol": status.protocol,
        "sandbox": status.sandbox,
        "tools": tools,
    })
}

fn print(status: &ServerStatus) {
    let ServerStatus { name, transport, protocol, sandbox, tools, .. } = status;
    match &status.state {
        ServerState::Failed(why) => output::line(format!("{name}  {transport}  failed: {why}")),
        state => output::line(format!(
            "{name}  {transport}  {}  protocol {protocol}  sandbox: {sandbox}",
            state.name()
        )),
    }
    for tool in tools {
        let hash = tool.definition.hash.get(..HASH_DIGITS).unwrap_or_default();
        let about = tool.definition.description.as_deref().unwrap_or_default();
        let about: String = about.lines().next().unwrap_or_default().chars().take(80).collect();
        let (state, rule) = (tool.state.name(), tool.rule.name());
        output::line(format!(
            "  {}/{}  {hash}  {state}  approval: {rule}  {about}",
            tool.server, tool.definition.name
        ));
    }
}

/// Calls a tool and prints its result. Exit code 1 when the tool failed.
pub fn call(config: &Config, arguments: &[String]) -> Result<ExitCode, Error> {
    let mcp_config = load(config)?;
    let (name, json) = match arguments {
        [name] => (name, ""),
        [name, json, ..] => (name, json.as_str()),
        [] => return Err(Error::usage("missing tool: mcp call SERVER/TOOL [JSON]")),
    };
    let outcome = runtime()?.block_on(called(mcp_config, name, json))?;
    match config.output {
        Output::Json => output::line(
            json!({
                "content": outcome.content,
                "structured_content": outcome.structured,
                "is_error": outcome.is_error,
            })
            .to_string(),
        ),
        Output::Text => output::line(&outcome.text),
    }
    Ok(ExitCode::from(u8::from(outcome.is_error)))
}

/// Starts the server of a tool alone, and calls the tool.
async fn called(mut config: McpConfig, name: &str, json: &str) -> Result<Outcome, Error> {
    if let Some((server, _)) = name.split_once('/') {
        config.servers.retain(|own, _| own == server);
        if config.servers.is_empty() {
            return Err(Error::usage(format!("--mcp-config has no server `{server}`")));
        }
        // What they name may be gone.
        config.auto.clear();
    }
    let mcp = Mcp::start(config, &[]).map_err(Error::failed)?;
    mcp.servers().settled(START_TIMEOUT).await;
    for status in mcp.servers().statuses() {
        if let ServerState::Failed(why) = status.state {
            output::note(format!("the server {} failed: {why}", status.name));
        }
    }
    let tool = mcp.servers().find(name).map_err(Error::failed)?;
    let arguments = Arguments::read(json, &tool.definition.schema).map_err(Error::usage)?;
    mcp.servers().call(&tool, arguments).await.map_err(Error::failed)
}
