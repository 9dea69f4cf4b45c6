//! One server in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::duration;
use crate::approval::{Approval, Rule};
use crate::place::{Place, ProcessLimits, ServerConfig};
use crate::sandbox::{SandboxMode, SandboxRules};
use crate::variables::expanded;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
    enabled: Option<bool>,
    timeout: Option<f64>,
    start_timeout: Option<f64>,
    approval: Option<ApprovalEntry>,
    #[serde(alias = "autoApprove", default)]
    always_allow: Vec<String>,
    #[serde(alias = "allowed_tools")]
    allowed_tools: Option<BTreeSet<String>>,
    max_result_bytes: Option<usize>,
    memory_bytes: Option<u64>,
    cpu_seconds: Option<u64>,
    #[serde(default)]
    sandbox: SandboxEntry,
    /// For readers of the file.
    #[serde(rename = "description")]
    _description: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ApprovalEntry {
    One(String),
    ByTool(ByTool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct ByTool {
    always: BTreeSet<String>,
    never: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct SandboxEntry {
    mode: String,
    network: bool,
    writable: Vec<PathBuf>,
}

impl Default for SandboxEntry {
    fn default() -> Self {
        Self { mode: SandboxMode::Auto.name().to_owned(), network: true, writable: Vec::new() }
    }
}

/// Reads a server; `None` for one that is disabled.
pub fn read(
    name: &str,
    value: Value,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<ServerConfig>, String> {
    let entry: Entry = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if entry.disabled || entry.enabled == Some(false) {
        return Ok(None);
    }
    let seconds = |field: &str, value: Option<f64>, default: f64| duration(field, value.unwrap_or(default));
    let result_bytes = entry.max_result_bytes.unwrap_or(100_000);
    if result_bytes == 0 {
        return Err("`maxResultBytes` must be at least 1".to_owned());
    }
    Ok(Some(ServerConfig {
        name: name.to_owned(),
        timeout: seconds("timeout", entry.timeout, 30.0)?,
        start_timeout: seconds("startTimeout", entry.start_timeout, 60.0)?,
        approval: approval(&entry)?,
        allowed: entry.allowed_tools.clone(),
        result_bytes,
        place: place(entry, lookup)?,
    }))
}

fn approval(entry: &Entry) -> Result<Approval, String> {
    let mut approval = Approval::default();
    match &entry.approval {
        Some(ApprovalEntry::One(name)) => {
            approval.default = Rule::of(name).ok_or(
                "`approval` must be `always`, `never`, or an object with lists of tools by these names",
            )?;
        }
        Some(ApprovalEntry::ByTool(ByTool { always, never })) => {
            if let Some(both) = always.intersection(never).next() {
                return Err(format!("`approval` has the tool `{both}` twice"));
            }
            approval.tools.extend(always.iter().map(|tool| (tool.clone(), Rule::Always)));
            approval.tools.extend(never.iter().map(|tool| (tool.clone(), Rule::Never)));
        }
        None => {}
    }
    approval.tools.extend(entry.always_allow.iter().map(|tool| (tool.clone(), Rule::Never)));
    Ok(approval)
}

fn place(entry: Entry, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Place, String> {
    let is_http = match entry.r#type.as_deref() {
        None => entry.url.is_some(),
        Some("stdio") => false,
        Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => true,
        Some("sse") => {
            return Err(
                "`type` is `sse`, an old transport that is not supported; use streamable HTTP (`http`)"
                    .to_owned(),
            );
        }
        Some(other) => {
            return Err(format!("`type` must be `stdio` or `http`, not `{}`", other.escape_debug()));
        }
    };
    let expand = |text: &str, field: &str| expanded(text, lookup).map_err(|why| format!("`{field}` {why}"));
    let map = |map: BTreeMap<String, String>, field: &str| {
        let pair =
            |(key, value): (String, String)| Ok((key.clone(), expand(&value, &format!("{field}.{key}"))?));
        map.into_iter().map(pair).collect::<Result<BTreeMap<_, _>, String>>()
    };
    match (is_http, entry.command, entry.url) {
        (true, None, Some(url)) => {
            let url = expand(&url, "url")?;
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err("`url` must begin with http:// or https://".to_owned());
            }
            Ok(Place::Http { url, headers: map(entry.headers, "headers")? })
        }
        (false, Some(command), None) => Ok(Place::Process {
            command: expand(&command, "command")?,
            args: entry.args.iter().map(|arg| expand(arg, "args")).collect::<Result<_, _>>()?,
            env: map(entry.env, "env")?,
            folder: entry.cwd,
            limits: limits(entry.memory_bytes, entry.cpu_seconds)?,
            sandbox: sandbox(entry.sandbox)?,
        }),
        (_, Some(_), Some(_)) => Err("has both `command` and `url`".to_owned()),
        (true, ..) => Err("needs a `url`".to_owned()),
        (false, ..) => Err("needs a `command` or a `url`".to_owned()),
    }
}

fn limits(memory_bytes: Option<u64>, cpu_seconds: Option<u64>) -> Result<ProcessLimits, String> {
    let default = ProcessLimits::default();
    let limits = ProcessLimits {
        memory_bytes: memory_bytes.unwrap_or(default.memory_bytes),
        cpu_seconds: cpu_seconds.unwrap_or(default.cpu_seconds),
    };
    match limits {
        ProcessLimits { memory_bytes: 0..0x10_0000, .. } => {
            Err("`memoryBytes` must be at least 1048576".to_owned())
        }
        ProcessLimits { cpu_seconds: 0, .. } => Err("`cpuSeconds` must be at least 1".to_owned()),
        limits => Ok(limits),
    }
}

fn sandbox(entry: SandboxEntry) -> Result<SandboxRules, String> {
    let mode = SandboxMode::of(&entry.mode).ok_or("`sandbox.mode` must be `auto`, `required` or `off`")?;
    if let Some(path) = entry.writable.iter().find(|path| !path.is_absolute()) {
        return Err(format!("`sandbox.writable` has `{}`, which is not an absolute path", path.display()));
    }
    Ok(SandboxRules { mode, network: entry.network, writable: entry.writable })
}
