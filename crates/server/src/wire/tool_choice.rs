//! `tool_choice` of chat completions and of the Responses API.

use omnibus_mcp::web_search::WEB_SEARCH;
use serde_json::{Map, Value};

use super::client_tools::ClientTool;
use super::fields::type_error;
use super::web_search;
use crate::error::ApiError;

const AT: &str = "tool_choice";

/// Which tools are called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Tools that the model chooses, if any.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// This one.
    Function(String),
}

impl ToolChoice {
    /// The tool that has to be called.
    pub fn chosen(&self) -> Option<&str> {
        match self {
            Self::Function(name) => Some(name),
            Self::Auto | Self::Required => None,
        }
    }
}

/// Which tools are called, and which may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Which tools are called.
    pub call: ToolChoice,
    /// The names of those that may be called; `None` for all.
    pub allowed: Option<Vec<String>>,
}

impl Choice {
    /// Whether a tool of this name may be called.
    pub fn allows(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|known| known == name))
    }

    /// Fails if a tool is allowed that is none of these.
    pub fn check<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Result<(), ApiError> {
        let is_unknown = |name: &&String| !names.clone().any(|known| known == *name);
        match self.allowed.iter().flatten().find(is_unknown) {
            None => Ok(()),
            Some(name) => {
                Err(ApiError::invalid(AT, format!("`{AT}` allows `{name}`, which is none of `tools`")))
            }
        }
    }
}

/// Reads `tool_choice`. `None`: no tool may be called.
pub fn read(value: Option<Value>, has_tools: bool) -> Result<Option<Choice>, ApiError> {
    let choice = match &value {
        None => Choice::default(),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => Choice::default(),
            "none" => return Ok(None),
            "required" => of(ToolChoice::Required),
            other => {
                let message = format!("`{AT}` must be none, auto, required or an object, not `{other}`");
                return Err(ApiError::invalid(AT, message));
            }
        },
        Some(Value::Object(object)) => of_object(object)?,
        Some(other) => return Err(type_error(AT, "a string or an object", other)),
    };
    if choice != Choice::default() && !has_tools {
        return Err(ApiError::invalid(AT, format!("`{AT}` needs `tools`")));
    }
    Ok(Some(choice))
}

fn of(call: ToolChoice) -> Choice {
    Choice { call, allowed: None }
}

fn of_object(object: &Map<String, Value>) -> Result<Choice, ApiError> {
    let kind = object.get("type").and_then(Value::as_str);
    if kind == Some("allowed_tools") {
        return allowed(inside(object, "allowed_tools"));
    }
    match name(object) {
        Some(name) => Ok(of(ToolChoice::Function(name))),
        None => match kind {
            Some("function" | "custom") | None => {
                Err(ApiError::invalid(AT, format!("`{AT}` must name a function")))
            }
            Some(other) => {
                let message = format!("`{AT}.type` must be a tool that the client runs, not `{other}`");
                Err(ApiError::unsupported(AT, message))
            }
        },
    }
}

/// Chat completions have the name inside `function` or `custom`, the Responses API beside the type. Some types are names.
fn name(object: &Map<String, Value>) -> Option<String> {
    let named = |object: &Map<String, Value>| object.get("name").and_then(Value::as_str).map(str::to_owned);
    match object.get("type").and_then(Value::as_str) {
        Some("custom") => named(inside(object, "custom")),
        Some("function") | None => named(inside(object, "function")),
        Some("tool_search") => Some("tool_search".to_owned()),
        Some("mcp") => {
            let server = object.get("server_label").and_then(Value::as_str)?;
            Some(omnibus_mcp::offered(server, &named(object)?))
        }
        Some(kind) if web_search::is_type(kind) => Some(WEB_SEARCH.to_owned()),
        Some(kind) => ClientTool::of_type(kind).map(|tool| tool.name().to_owned()),
    }
}

fn inside<'a>(object: &'a Map<String, Value>, field: &str) -> &'a Map<String, Value> {
    object.get(field).and_then(Value::as_object).unwrap_or(object)
}

fn allowed(object: &Map<String, Value>) -> Result<Choice, ApiError> {
    let call = match object.get("mode").and_then(Value::as_str) {
        Some("auto") => ToolChoice::Auto,
        Some("required") => ToolChoice::Required,
        _ => {
            let at = format!("{AT}.mode");
            return Err(ApiError::invalid(&at, format!("`{at}` must be auto or required")));
        }
    };
    let at = format!("{AT}.tools");
    let Some(tools) = object.get("tools").and_then(Value::as_array) else {
        return Err(ApiError::invalid(&at, format!("`{at}` must be a list")));
    };
    // Tools that OpenAI's servers run have no name; no model here can call them.
    let names = tools.iter().filter_map(|tool| tool.as_object().and_then(name)).collect();
    Ok(Choice { call, allowed: Some(names) })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(choice: Value, expected: Expect) {
        let read = match read(Some(choice), true) {
            Ok(Some(choice)) => format!("{:?} {:?}", choice.call, choice.allowed),
            Ok(None) => "none".to_owned(),
            Err(error) => format!("{}: {}", error.param().unwrap_or_default(), error.message()),
        };
        expected.assert_eq(&read);
    }

    #[test]
    fn a_tool_is_named_in_the_shape_of_either_api() {
        check(json!("none"), expect!["none"]);
        check(json!("required"), expect!["Required None"]);
        check(json!({"type": "function", "function": {"name": "f"}}), expect![[r#"Function("f") None"#]]);
        check(json!({"type": "function", "name": "f"}), expect![[r#"Function("f") None"#]]);
        check(json!({"type": "custom", "custom": {"name": "c"}}), expect![[r#"Function("c") None"#]]);
        check(json!({"type": "custom", "name": "c"}), expect![[r#"Function("c") None"#]]);
        check(json!({"type": "apply_patch"}), expect![[r#"Function("apply_patch") None"#]]);
        check(
            json!({"type": "file_search"}),
            expect!["tool_choice: `tool_choice.type` must be a tool that the client runs, not `file_search`"],
        );
        check(json!({"type": "function"}), expect!["tool_choice: `tool_choice` must name a function"]);
        check(
            json!("perhaps"),
            expect!["tool_choice: `tool_choice` must be none, auto, required or an object, not `perhaps`"],
        );
        check(json!(3), expect!["tool_choice: `tool_choice` must be a string or an object, not an integer"]);
    }

    #[test]
    fn allowed_tools_are_a_list_of_names() {
        let tools = json!([{"type": "function", "name": "f"}, {"type": "function", "function": {"name": "g"}},
            {"type": "custom", "name": "c"}, {"type": "shell"}, {"type": "mcp", "server_label": "s"}]);
        check(
            json!({"type": "allowed_tools", "mode": "auto", "tools": tools}),
            expect![[r#"Auto Some(["f", "g", "c", "shell"])"#]],
        );
        check(
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}}),
            expect![[r#"Required Some(["g"])"#]],
        );
        check(
            json!({"type": "allowed_tools", "mode": "some", "tools": []}),
            expect!["tool_choice.mode: `tool_choice.mode` must be auto or required"],
        );
        check(
            json!({"type": "allowed_tools", "mode": "auto"}),
            expect!["tool_choice.tools: `tool_choice.tools` must be a list"],
        );
    }

    #[test]
    fn a_choice_needs_tools_and_allows_only_those_there_are() {
        assert_eq!(read(None, false), Ok(Some(Choice::default())));
        assert!(read(Some(json!("required")), false).is_err());
        let choice = Choice { call: ToolChoice::Auto, allowed: Some(vec!["f".into()]) };
        assert!(choice.allows("f") && !choice.allows("g") && Choice::default().allows("g"));
        assert!(choice.check(["f", "g"].into_iter()).is_ok());
        assert!(choice.check(["g"].into_iter()).is_err());
    }
}
