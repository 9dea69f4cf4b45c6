//! A tool of a server as the search of the web: the model gives a query, and reads pages.
//!
//! Invariant: what the model reads is the text of [`SearchRules::found`], from which [`pages`] reads the same pages again.

mod domains;
mod pages;

use serde_json::{Map, Value, json};

pub use domains::Domains;
pub use pages::{Page, pages, text};

use crate::arguments::Arguments;
use crate::error::CallError;
use crate::outcome::Outcome;

/// The name by which models and APIs know the search.
pub const WEB_SEARCH: &str = "web_search";
/// The names that a tool may have for its query.
const QUERY_NAMES: &[&str] = &["query", "q", "search_query", "searchQuery", "search_term", "keywords"];
/// The argument of the model's call.
const QUERY: &str = "query";

/// What the model knows of the search, beside its name.
pub const DESCRIPTION: &str = "Searches the web. Returns titles, addresses and excerpts of pages.";

/// What holds for the searches of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchRules {
    /// Which pages may be shown.
    pub domains: Domains,
    /// Most searches.
    pub max_uses: Option<usize>,
}

/// The schema of the model's call.
pub fn schema() -> Map<String, Value> {
    let schema = json!({
        "type": "object",
        "properties": {QUERY: {"type": "string", "description": "What to search for."}},
        "required": [QUERY],
    });
    match schema {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The query of a call that matches [`schema`].
pub fn query(json: &str) -> Option<String> {
    let arguments: Value = serde_json::from_str(json).ok()?;
    arguments.get(QUERY)?.as_str().map(str::to_owned)
}

/// The call of a tool with this schema for a model's call. Fails where the tool has no argument for a query, or needs more
/// arguments than that.
pub fn arguments(call: &Arguments, tool: &Map<String, Value>) -> Result<Arguments, CallError> {
    let query = call.0.get(QUERY).cloned().unwrap_or_default();
    let name = query_name(tool).ok_or_else(|| {
        CallError::Arguments("the tool that searches has no argument for a query".to_owned())
    })?;
    Arguments::check(Map::from_iter([(name.to_owned(), query)]), tool)
}

/// The argument for a query: by its name, or the only one that the tool needs.
fn query_name(tool: &Map<String, Value>) -> Option<&str> {
    let properties = tool.get("properties")?.as_object()?;
    let is_text = |name: &str| {
        let kind = properties.get(name).and_then(|property| property.get("type"));
        kind.is_none_or(|kind| kind == "string")
    };
    let known = QUERY_NAMES.iter().copied().find(|name| properties.contains_key(*name) && is_text(name));
    let required = || match tool.get("required")?.as_array()?.as_slice() {
        [only] => only.as_str().filter(|name| is_text(name)),
        _ => None,
    };
    known.or_else(required)
}

impl SearchRules {
    /// The result as the model reads it: pages that may be shown. A result without pages stays as it is, unless some pages may
    /// not be shown.
    pub fn found(&self, outcome: Outcome) -> Outcome {
        if outcome.is_error {
            return outcome;
        }
        let found = pages::of(&outcome);
        if found.is_empty() {
            return match self.domains.is_all() {
                true => outcome,
                false => Outcome::failure("the result has no addresses, by which pages could be chosen"),
            };
        }
        let shown: Vec<Page> = found.into_iter().filter(|page| self.domains.allows(&page.url)).collect();
        let text = match shown.is_empty() {
            true => "No pages were found.".to_owned(),
            false => pages::text(&shown),
        };
        Outcome { text, ..outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(fields) = value else { unreachable!() };
        fields
    }

    #[test]
    fn the_query_is_the_argument_that_the_tool_has_for_it() {
        let call = Arguments::read(r#"{"query":"rust"}"#, &schema()).unwrap();
        for (tool, expected) in [
            (
                json!({"properties": {"count": {"type": "integer"}, "q": {"type": "string"}}}),
                r#"{"q":"rust"}"#,
            ),
            (json!({"properties": {"text": {"type": "string"}}, "required": ["text"]}), r#"{"text":"rust"}"#),
        ] {
            let made = arguments(&call, &object(tool)).unwrap();
            assert_eq!(Value::Object(made.0).to_string(), expected);
        }
        for tool in [
            json!({"properties": {"query": {"type": "string"}}, "required": ["query", "key"]}),
            json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]}),
            json!({}),
        ] {
            assert!(matches!(arguments(&call, &object(tool)), Err(CallError::Arguments(_))));
        }
        assert!(Arguments::read("{}", &schema()).is_err());
    }

    #[test]
    fn pages_of_other_domains_are_not_shown() {
        let text = "Title: A\nURL: https://a.example/x\none\n\nTitle: B\nURL: https://b.example/\ntwo";
        let outcome = Outcome { text: text.to_owned(), ..Outcome::default() };
        let all = SearchRules::default().found(outcome.clone());
        assert_eq!(all.text, text);
        let allowed = |names: &[&str]| {
            let allowed = names.iter().map(|name| (*name).to_owned()).collect();
            SearchRules { domains: Domains { allowed: Some(allowed), blocked: Vec::new() }, max_uses: None }
        };
        let some = allowed(&["b.example"]).found(outcome.clone());
        assert_eq!(some.text, "Title: B\nURL: https://b.example/\ntwo");
        assert_eq!(allowed(&["c.example"]).found(outcome).text, "No pages were found.");
        let plain = Outcome { text: "words".to_owned(), ..Outcome::default() };
        assert_eq!(SearchRules::default().found(plain.clone()).text, "words");
        assert!(allowed(&["b.example"]).found(plain).is_error);
    }
}
