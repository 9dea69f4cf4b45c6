//! Tools of MCP servers in requests: OpenAI's tool `mcp`, in chat completions and the Responses API.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{Field, Fields, harmless, honoured, refused, type_error};
use crate::error::ApiError;

/// Fields of a tool of the type `mcp`.
pub const FIELDS: &[Field] = &[
    honoured("type", "`mcp`"),
    honoured("server_label", "a server of `--mcp-config`, or with `server_url` a name for it"),
    honoured("server_url", "with `--allow-mcp-url`: a server that is called for this request"),
    honoured("authorization", "with `server_url`: the token that the server gets"),
    honoured("headers", "with `server_url`: headers that the server gets"),
    honoured("allowed_tools", "the names of the tools that are offered, or `tool_names` and `read_only`"),
    honoured("require_approval", "`always`, `never`, or `always` and `never` with `tool_names`"),
    harmless("server_description", "the tools have descriptions of their own"),
    harmless("defer_loading", "all tools are in the prompt"),
    refused("connector_id", "this server has no connectors; use `server_label` or `server_url`"),
    refused("tunnel_id", "this server has no tunnels; use `server_label` or `server_url`"),
];

/// Fields of a filter of tools.
pub const FILTER: &[Field] = &[
    honoured("tool_names", "names of tools"),
    honoured("read_only", "the tools of which their server says that they change nothing, or the others"),
];

/// Fields of `require_approval`.
pub const APPROVAL: &[Field] = &[
    honoured("always", "tools whose calls need an approval"),
    honoured("never", "tools whose calls need none"),
];

/// Most tools of this type in a request.
pub const SERVERS_MAX: usize = 32;

/// A tool of the type `mcp`: a server.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// Its place in the request, for errors.
    pub at: String,
    /// Its name.
    pub label: String,
    /// Where it is; `None` is a configured one.
    pub remote: Option<RemotePlace>,
    /// Which tools are offered.
    pub allowed: Filter,
    /// Which of them need an approval.
    pub approval: RequestedApproval,
}

/// Where a server of a request is.
#[derive(Clone, PartialEq, Eq)]
pub struct RemotePlace {
    /// Its URL.
    pub url: String,
    /// The headers of each request to it.
    pub headers: BTreeMap<String, String>,
}

/// Headers have secrets, and so may a URL.
impl std::fmt::Debug for RemotePlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RemotePlace")
    }
}

/// Which tools of a server are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// By name; `None` is all.
    pub names: Option<BTreeSet<String>>,
    /// Names that are left out.
    pub except: BTreeSet<String>,
    /// By whether their server says that they change nothing.
    pub read_only: Option<bool>,
}

impl Filter {
    /// Whether a tool is meant.
    pub fn selects(&self, name: &str, is_read_only: bool) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
            && !self.except.contains(name)
            && self.read_only.is_none_or(|wanted| wanted == is_read_only)
    }
}

/// Which tools need an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedApproval {
    /// As the configuration says.
    Configured,
    /// All.
    Always,
    /// None, where the configuration allows it.
    Never,
    /// These do, and these do not; others do.
    ByTool {
        /// Tools that do.
        always: Option<Filter>,
        /// Tools that do not.
        never: Option<Filter>,
    },
}

impl RequestedApproval {
    /// Whether a tool needs an approval, as far as the request says.
    pub fn is_needed(&self, name: &str, is_read_only: bool) -> bool {
        match self {
            Self::Configured | Self::Never => false,
            Self::Always => true,
            Self::ByTool { always, never } => {
                let is_in = |filter: &Option<Filter>| {
                    filter.as_ref().is_some_and(|filter| filter.selects(name, is_read_only))
                };
                is_in(always) || !is_in(never)
            }
        }
    }
}

/// Whether a tool is of the type `mcp`.
pub fn is_mcp(tool: &Value) -> bool {
    tool.get("type").and_then(Value::as_str) == Some("mcp")
}

/// Reads the tools of this type in a list, and passes over others.
pub fn read_all(list: &[Value]) -> Result<Vec<McpServer>, ApiError> {
    let mut servers: Vec<McpServer> = Vec::new();
    for (index, value) in list.iter().enumerate().filter(|(_, value)| is_mcp(value)) {
        let server = read(value.clone(), &format!("tools[{index}]"))?;
        if servers.iter().any(|other| other.label == server.label) {
            let at = format!("{}.server_label", server.at);
            return Err(ApiError::invalid(&at, format!("`{at}` is the label of another tool, too")));
        }
        servers.push(server);
    }
    if servers.len() > SERVERS_MAX {
        return Err(ApiError::invalid(
            "tools",
            format!("`tools` must have at most {SERVERS_MAX} MCP servers"),
        ));
    }
    Ok(servers)
}

fn read(value: Value, at: &str) -> Result<McpServer, ApiError> {
    let mut fields = Fields::open(value, at, &[FIELDS])?;
    fields.text("type")?;
    let label = fields.text("server_label")?;
    let label = fields.required("server_label", label)?;
    if label.is_empty() || label.len() > 64 || label.contains('/') {
        let at = fields.at("server_label");
        return Err(ApiError::invalid(&at, format!("`{at}` must have 1 to 64 bytes, without `/`")));
    }
    let remote = remote(&mut fields)?;
    let allowed = match fields.value("allowed_tools") {
        Some(value) => filter(value, &fields.at("allowed_tools"))?,
        None => Filter::default(),
    };
    let approval = approval(&mut fields, remote.is_some())?;
    fields.finish();
    Ok(McpServer { at: at.to_owned(), label, remote, allowed, approval })
}

fn remote(fields: &mut Fields) -> Result<Option<RemotePlace>, ApiError> {
    let (url, token) = (fields.text("server_url")?, fields.text("authorization")?);
    let headers = fields.object("headers")?;
    let Some(url) = url else {
        let given = [("authorization", token.is_some()), ("headers", headers.is_some())];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                let at = fields.at(name);
                Err(ApiError::invalid(
                    &at,
                    format!(
                        "`{at}` goes with `server_url`; those of a configured server are in its configuration"
                    ),
                ))
            }
            None => Ok(None),
        };
    };
    let mut all = headers_of(headers.unwrap_or_default(), &fields.at("headers"))?;
    if let Some(token) = token {
        all.insert("authorization".to_owned(), format!("Bearer {token}"));
    }
    Ok(Some(RemotePlace { url, headers: all }))
}

fn headers_of(object: Map<String, Value>, at: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let pair = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name.to_ascii_lowercase(), text)),
        other => Err(type_error(&format!("{at}.{name}"), "a string", &other)),
    };
    object.into_iter().map(pair).collect()
}

/// A list of names, or an object with them.
pub fn filter(value: Value, at: &str) -> Result<Filter, ApiError> {
    match value {
        Value::Array(names) => Ok(Filter { names: Some(names_of(names, at)?), ..Filter::default() }),
        value => {
            let mut fields = Fields::open(value, at, &[FILTER])?;
            let at = fields.at("tool_names");
            let names = fields.list("tool_names")?.map(|names| names_of(names, &at)).transpose()?;
            Ok(Filter { names, read_only: fields.flag("read_only")?, ..Filter::default() })
        }
    }
}

fn names_of(names: Vec<Value>, at: &str) -> Result<BTreeSet<String>, ApiError> {
    let name = |(index, value): (usize, Value)| match value {
        Value::String(name) => Ok(name),
        other => Err(type_error(&format!("{at}[{index}]"), "a string", &other)),
    };
    names.into_iter().enumerate().map(name).collect()
}

/// OpenAI's default is `always`. For a configured server it is what the operator says.
fn approval(fields: &mut Fields, is_remote: bool) -> Result<RequestedApproval, ApiError> {
    let at = fields.at("require_approval");
    match fields.value("require_approval") {
        None if is_remote => Ok(RequestedApproval::Always),
        None => Ok(RequestedApproval::Configured),
        Some(Value::String(name)) => match name.as_str() {
            "always" => Ok(RequestedApproval::Always),
            "never" => Ok(RequestedApproval::Never),
            _ => Err(ApiError::invalid(&at, format!("`{at}` must be always, never or an object"))),
        },
        Some(value) => {
            let mut inner = Fields::open(value, &at, &[APPROVAL])?;
            let mut of = |name: &str| {
                let at = inner.at(name);
                inner.value(name).map(|value| filter(value, &at)).transpose()
            };
            Ok(RequestedApproval::ByTool { always: of("always")?, never: of("never")? })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(tool: Value) -> Result<McpServer, String> {
        read(tool, "tools[0]").map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_configured_server_and_one_at_a_url_are_read() {
        let configured =
            read_one(json!({"type": "mcp", "server_label": "a", "allowed_tools": ["x"]})).unwrap();
        assert_eq!((configured.remote, configured.approval), (None, RequestedApproval::Configured));
        assert!(configured.allowed.selects("x", false) && !configured.allowed.selects("y", false));
        let remote = json!({"type": "mcp", "server_label": "a", "server_url": "https://x/mcp", "authorization": "t",
            "allowed_tools": {"read_only": true}, "headers": {"X-A": "1"}});
        let remote = read_one(remote).unwrap();
        assert_eq!(remote.approval, RequestedApproval::Always);
        assert!(remote.allowed.selects("x", true) && !remote.allowed.selects("x", false));
        let headers = remote.remote.clone().unwrap().headers;
        assert_eq!((headers["authorization"].as_str(), headers["x-a"].as_str()), ("Bearer t", "1"));
        assert!(!format!("{remote:?}").contains("Bearer"));
    }

    #[test]
    fn an_approval_may_be_by_tool() {
        let tool = json!({"type": "mcp", "server_label": "a",
            "require_approval": {"never": {"tool_names": ["read"]}, "always": {"tool_names": ["write"]}}});
        let approval = read_one(tool).unwrap().approval;
        assert!(!approval.is_needed("read", false) && approval.is_needed("write", false));
        assert!(approval.is_needed("other", false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (tool, expected) in [
            (json!({"type": "mcp"}), "`tools[0].server_label` is missing"),
            (json!({"type": "mcp", "server_label": "a", "x": 1}), "unknown field `tools[0].x`"),
            (
                json!({"type": "mcp", "server_label": "a", "require_approval": "maybe"}),
                "`tools[0].require_approval` must be always, never or an object",
            ),
            (
                json!({"type": "mcp", "server_label": "a", "allowed_tools": [1]}),
                "`tools[0].allowed_tools[0]` must be a string, not an integer",
            ),
        ] {
            assert_eq!(read_one(tool).unwrap_err(), expected);
        }
        let connector = json!({"type": "mcp", "server_label": "a", "connector_id": "connector_x"});
        assert!(read_one(connector).unwrap_err().contains("has no connectors"));
        let token = json!({"type": "mcp", "server_label": "a", "authorization": "t"});
        assert!(read_one(token).unwrap_err().contains("goes with `server_url`"));
        let twice = vec![json!({"type": "mcp", "server_label": "a"}); 2];
        assert!(read_all(&twice).unwrap_err().message().contains("the label of another tool"));
    }
}
