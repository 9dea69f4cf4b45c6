//! The search of the web that requests name by a tool of Anthropic's or OpenAI's servers.

use omnibus_mcp::web_search::{Domains, SearchRules, WEB_SEARCH};
use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured, type_error};
use crate::error::ApiError;

/// Fields of Anthropic's tool.
pub const ANTHROPIC: &[Field] = &[
    honoured("type", "`web_search_…`, of any version"),
    honoured("name", "`web_search`"),
    honoured("max_uses", "most searches of the message"),
    honoured("allowed_domains", "only pages of these domains are shown"),
    honoured("blocked_domains", "no pages of these domains are shown"),
    harmless("user_location", "the tool that searches gets the query alone"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("allowed_callers", "only the model searches"),
    harmless("defer_loading", "the search is always there"),
    harmless("response_inclusion", "results are always in the message"),
    harmless("strict", "the search has one argument"),
];

/// Fields of OpenAI's tool.
pub const OPENAI: &[Field] = &[
    honoured("type", "`web_search` or `web_search_preview`, of any version"),
    honoured("filters", "`allowed_domains`, `blocked_domains`"),
    honoured("external_web_access", "false: there is no search, as nothing is stored to search in"),
    harmless("search_context_size", "`maxResultBytes` of the server that searches is the limit"),
    harmless("user_location", "the tool that searches gets the query alone"),
    harmless("search_content_types", "texts are searched"),
];

/// Fields of `filters`.
pub const FILTERS: &[Field] = &[
    honoured("allowed_domains", "only pages of these domains are shown"),
    honoured("blocked_domains", "no pages of these domains are shown"),
];

/// Most searches that a request may name.
const USES_MAX: usize = 1000;
/// Most domains of a list.
const DOMAINS_MAX: usize = 1000;

/// The search of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct WebSearch {
    /// Its place in the request, for errors.
    pub at: String,
    /// Whether there is an answer without it.
    pub need: Need,
    /// What holds for its searches.
    pub rules: SearchRules,
}

/// Whether a request can be answered without a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It can: agents offer the search whether or not a server has one.
    Optional,
    /// It cannot: the search is the tool that must be called.
    Required,
}

impl Need {
    /// The need of a request in which this tool has to be called.
    pub fn of(chosen: Option<&str>) -> Self {
        if chosen == Some(WEB_SEARCH) { Self::Required } else { Self::Optional }
    }
}

/// Whether a tool is a search, in both APIs.
pub fn is_search(tool: &Value) -> bool {
    tool.get("type").and_then(Value::as_str).is_some_and(is_type)
}

/// Whether a type of tools is a search.
pub fn is_type(kind: &str) -> bool {
    kind.starts_with(WEB_SEARCH)
}

/// The search among Anthropic's tools. A tool of the client may have such a type and a schema of its own.
pub fn of_anthropic(tools: &[Value]) -> Result<Option<WebSearch>, ApiError> {
    let is_servers = |tool: &Value| is_search(tool) && tool.get("input_schema").is_none_or(Value::is_null);
    let Some((at, tool)) = only(tools, is_servers)? else { return Ok(None) };
    let mut fields = Fields::tolerant(tool, &at, &[ANTHROPIC])?;
    let max_uses = fields.count("max_uses", (1, USES_MAX))?;
    let rules = SearchRules { domains: domains(&mut fields)?, max_uses };
    Ok(Some(WebSearch { at, need: Need::Optional, rules }))
}

/// The search among the tools of the Responses API.
pub fn of_responses(tools: &[Value]) -> Result<Option<WebSearch>, ApiError> {
    let Some((at, tool)) = only(tools, is_search)? else { return Ok(None) };
    let mut fields = Fields::tolerant(tool, &at, &[OPENAI])?;
    if fields.flag("external_web_access")? == Some(false) {
        return Ok(None);
    }
    let domains = match fields.value("filters") {
        Some(filters) => domains(&mut Fields::tolerant(filters, &fields.at("filters"), &[FILTERS])?)?,
        None => Domains::default(),
    };
    let rules = SearchRules { domains, max_uses: None };
    Ok(Some(WebSearch { at, need: Need::Optional, rules }))
}

/// The place and the value of the search. There is one at most.
fn only(tools: &[Value], is_search: impl Fn(&Value) -> bool) -> Result<Option<(String, Value)>, ApiError> {
    let mut found = tools.iter().enumerate().filter(|(_, tool)| is_search(tool));
    let first = found.next().map(|(index, tool)| (format!("tools[{index}]"), tool.clone()));
    match found.next() {
        None => Ok(first),
        Some((index, _)) => {
            let at = format!("tools[{index}].type");
            Err(ApiError::invalid(&at, format!("`{at}` is a second search of the web; a request has one")))
        }
    }
}

fn domains(fields: &mut Fields) -> Result<Domains, ApiError> {
    let allowed = names(fields, "allowed_domains")?;
    Ok(Domains { allowed, blocked: names(fields, "blocked_domains")?.unwrap_or_default() })
}

/// An empty list is none.
fn names(fields: &mut Fields, name: &str) -> Result<Option<Vec<String>>, ApiError> {
    let at = fields.at(name);
    let list = fields.list(name)?.unwrap_or_default();
    if list.len() > DOMAINS_MAX {
        return Err(ApiError::invalid(&at, format!("`{at}` must have at most {DOMAINS_MAX} domains")));
    }
    let domain = |(index, value): (usize, Value)| match value {
        Value::String(name) => Ok(name),
        other => Err(type_error(&format!("{at}[{index}]"), "a string", &other)),
    };
    let names: Vec<String> = list.into_iter().enumerate().map(domain).collect::<Result<_, _>>()?;
    Ok(Some(names).filter(|names| !names.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_search_of_both_apis_is_read() {
        let tools = [
            json!({"name": "f", "input_schema": {}}),
            json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["a.example"],
                "blocked_domains": []}),
        ];
        let search = of_anthropic(&tools).unwrap().unwrap();
        let domains = Domains { allowed: Some(vec!["a.example".to_owned()]), blocked: Vec::new() };
        assert_eq!((search.at.as_str(), search.rules.max_uses), ("tools[1]", Some(8)));
        assert_eq!(search.rules.domains, domains);
        for kind in ["web_search", "web_search_preview", "web_search_2025_08_26"] {
            let tools = [json!({"type": kind, "filters": {"allowed_domains": ["a.example"]}})];
            assert_eq!(of_responses(&tools).unwrap().unwrap().rules.domains, domains);
        }
        assert_eq!(
            of_responses(&[json!({"type": "web_search", "external_web_access": false})]).unwrap(),
            None
        );
        let own = json!({"type": "web_search_own", "name": "f", "input_schema": {"type": "object"}});
        assert_eq!(of_anthropic(&[own]).unwrap(), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let of = |tool: Value| of_anthropic(&[tool]).unwrap_err().message().to_owned();
        let tool = |field: &str, value: Value| json!({"type": "web_search_20250305", field: value});
        assert!(of(tool("max_uses", json!(0))).contains("tools[0].max_uses"));
        assert!(of(tool("allowed_domains", json!([1]))).contains("tools[0].allowed_domains[0]"));
        let twice = vec![json!({"type": "web_search"}); 2];
        assert!(of_responses(&twice).unwrap_err().message().contains("tools[1].type"));
    }
}
