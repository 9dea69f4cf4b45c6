//! The configuration: `mcpServers` as Claude Desktop, Cursor and LM Studio write it, or `servers` as VS Code does, and our own
//! settings in `omnibus`.
//!
//! Invariant: a field of a server that is not known is an error that names it. Other fields at the top are other programs'.

mod entry;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::approval::Rule;
use crate::environment;
use crate::error::ConfigError;
use crate::place::ServerConfig;

/// Most servers of a configuration.
const SERVERS_MAX: usize = 256;

/// The servers and what holds for all of them.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The servers that are not disabled, by name.
    pub servers: BTreeMap<String, ServerConfig>,
    /// The limits of a request's loop.
    pub limits: LoopLimits,
    /// The tools that a chat request with `"tools": "auto"` gets.
    pub auto: Vec<Selector>,
    /// The tool that searches the web, where a request has the search of its API.
    pub web_search: Option<SearchTool>,
    /// How long an approval is waited for.
    pub approval_timeout: Duration,
    /// The file of pinned definitions.
    pub pins: Option<PathBuf>,
}

/// The limits of the loop of one request. What a request says itself is at most this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// Most generations that end in calls.
    pub rounds: usize,
    /// Most calls.
    pub calls: usize,
    /// Longest time, after which no call starts.
    pub time: Duration,
    /// Most bytes of all results.
    pub result_bytes: usize,
    /// Most tokens of all prompts and completions, after which no call starts.
    pub tokens: usize,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self {
            rounds: 10,
            calls: 32,
            time: Duration::from_secs(300),
            result_bytes: 1 << 20,
            tokens: 1_000_000,
        }
    }
}

/// A server's tools, or one of them: `server` or `server/tool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The server.
    pub server: String,
    /// The tool; `None` is all.
    pub tool: Option<String>,
}

impl Selector {
    /// Reads `server` or `server/tool`.
    pub fn read(text: &str) -> Self {
        match text.split_once('/') {
            Some((server, tool)) => Self { server: server.to_owned(), tool: Some(tool.to_owned()) },
            None => Self { server: text.to_owned(), tool: None },
        }
    }

    /// Whether it selects a tool.
    pub fn selects(&self, server: &str, tool: &str) -> bool {
        self.server == server && self.tool.as_deref().is_none_or(|own| own == tool)
    }
}

/// A tool that searches the web, which needs no approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchTool {
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
}

impl SearchTool {
    /// Reads `server/tool`.
    fn read(text: &str, servers: &BTreeMap<String, ServerConfig>) -> Result<Self, String> {
        let at = "`omnibus.webSearch`";
        let Some((server, tool)) = text.split_once('/') else {
            return Err(format!("{at} must be a tool, as `server/tool`, not `{text}`"));
        };
        let Some(config) = servers.get(server) else {
            return Err(format!("{at} names the server `{server}`, which is not configured or disabled"));
        };
        if config.approval.rule(tool) == Rule::Always {
            return Err(format!(
                "{at} names `{text}`, whose calls need an approval; add `\"approval\": {{\"never\": [\"{tool}\"]}}` to the server"
            ));
        }
        Ok(Self { server: server.to_owned(), tool: tool.to_owned() })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Own {
    max_rounds: usize,
    max_tool_calls: usize,
    max_seconds: f64,
    max_result_bytes: usize,
    max_total_tokens: usize,
    approval_timeout: f64,
    auto: Vec<String>,
    web_search: Option<String>,
    pins: Option<PathBuf>,
}

impl Default for Own {
    fn default() -> Self {
        let limits = LoopLimits::default();
        Self {
            max_rounds: limits.rounds,
            max_tool_calls: limits.calls,
            max_seconds: limits.time.as_secs_f64(),
            max_result_bytes: limits.result_bytes,
            max_total_tokens: limits.tokens,
            approval_timeout: 600.0,
            auto: Vec::new(),
            web_search: None,
            pins: None,
        }
    }
}

impl Config {
    /// Reads a file, with the variables of this process's environment.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        let invalid = |why| ConfigError::Invalid { path: path.to_owned(), why };
        let mut config = Self::read(&text, &environment::text).map_err(invalid)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let pins = config.pins.take().map(|pins| folder.join(pins));
        config.pins = Some(pins.unwrap_or_else(|| path.with_extension("pins.json")));
        Ok(config)
    }

    /// Reads a configuration. Fails with a line that names the field.
    pub fn read(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let root: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let own = root.get("omnibus").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        let own: Own = serde_json::from_value(own).map_err(|error| format!("`omnibus`: {error}"))?;
        let entries = entries(&root)?;
        let mut servers = BTreeMap::new();
        for (name, value) in entries {
            let server = entry::read(name, value.clone(), lookup);
            if let Some(server) = server.map_err(|why| format!("the server `{name}`: {why}"))? {
                servers.insert(name.clone(), server);
            }
        }
        own.into_config(servers)
    }
}

fn entries(root: &Map<String, Value>) -> Result<&Map<String, Value>, String> {
    let found = match (root.get("mcpServers"), root.get("servers")) {
        (Some(found), None) | (None, Some(found)) => found,
        (Some(_), Some(_)) => return Err("has both `mcpServers` and `servers`".to_owned()),
        (None, None) => return Err("has no `mcpServers`".to_owned()),
    };
    let found = found.as_object().ok_or("`mcpServers` must be an object")?;
    if found.len() > SERVERS_MAX {
        return Err(format!("`mcpServers` must have at most {SERVERS_MAX} servers"));
    }
    match found.keys().find(|name| !is_name(name)) {
        Some(name) => Err(format!(
            "the server name `{}` must have 1 to 64 characters, without `/`",
            name.escape_debug()
        )),
        None => Ok(found),
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count()) && !name.contains('/') && !name.chars().any(char::is_control)
}

/// Seconds of a field.
fn duration(field: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("`{field}` must be a number of seconds above 0"))
}

impl Own {
    fn into_config(self, servers: BTreeMap<String, ServerConfig>) -> Result<Config, String> {
        let counts = [
            ("maxRounds", self.max_rounds),
            ("maxToolCalls", self.max_tool_calls),
            ("maxResultBytes", self.max_result_bytes),
        ];
        if let Some((field, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("`omnibus.{field}` must be at least 1"));
        }
        let web_search = self.web_search.as_deref().map(|text| SearchTool::read(text, &servers));
        let config = Config {
            servers,
            web_search: web_search.transpose()?,
            limits: LoopLimits {
                rounds: self.max_rounds,
                calls: self.max_tool_calls,
                time: duration("omnibus.maxSeconds", self.max_seconds)?,
                result_bytes: self.max_result_bytes,
                tokens: self.max_total_tokens,
            },
            auto: self.auto.iter().map(|text| Selector::read(text)).collect(),
            approval_timeout: duration("omnibus.approvalTimeout", self.approval_timeout)?,
            pins: self.pins,
        };
        for Selector { server, .. } in &config.auto {
            if !config.servers.contains_key(server) {
                return Err(format!(
                    "`omnibus` names the server `{server}`, which is not configured or disabled"
                ));
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
