//! Tool definitions and `tool_choice`.

use serde_json::Value;

use super::fields::{Field, Fields, honoured, type_error};
use crate::error::ApiError;

/// Fields of a tool.
pub const FIELDS: &[Field] =
    &[honoured("type", "`function`"), honoured("function", "the function's definition")];

/// Fields of a tool's `function`.
pub const FUNCTION: &[Field] = &[
    honoured("name", "the function's name"),
    honoured("description", "passed to the chat template"),
    honoured("parameters", "a JSON schema; passed to the chat template"),
    honoured("strict", "accepted; arguments follow the model's own reading of the schema"),
];

/// Most tools of one request.
pub const TOOLS_MAX: usize = 1024;
/// Longest name of a function, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A function that the model may call, as passed to the chat template.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The function's name.
    pub name: String,
    /// The function's description.
    pub description: Option<String>,
    /// A JSON schema of the arguments.
    pub parameters: Option<Value>,
}

/// The tools that the model may call, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    /// Empty without tools, or with `tool_choice` of `none`.
    pub list: Vec<Tool>,
    /// `parallel_tool_calls`.
    pub parallel: ParallelCalls,
}

/// How many calls a message may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ParallelCalls {
    /// Several.
    #[default]
    Allow,
    /// One.
    Refuse,
}

/// Takes `tools`, `tool_choice` and `parallel_tool_calls`.
pub fn read(fields: &mut Fields) -> Result<Tools, ApiError> {
    let list = fields.list("tools")?.unwrap_or_default();
    if list.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("`tools` must have at most {TOOLS_MAX} entries")));
    }
    let tool = |(index, value)| tool(value, &format!("tools[{index}]"));
    let list: Vec<Tool> = list.into_iter().enumerate().map(tool).collect::<Result<_, _>>()?;
    let parallel = match fields.flag("parallel_tool_calls")? {
        Some(false) => ParallelCalls::Refuse,
        Some(true) | None => ParallelCalls::Allow,
    };
    let tools = Tools { list, parallel };
    match fields.value("tool_choice") {
        None => Ok(tools),
        Some(Value::String(choice)) if choice == "auto" => Ok(tools),
        Some(Value::String(choice)) if choice == "none" => Ok(Tools::default()),
        Some(choice) => Err(refused_choice(&choice, &tools.list)),
    }
}

fn refused_choice(choice: &Value, tools: &[Tool]) -> ApiError {
    let at = "tool_choice";
    match choice {
        Value::String(choice) if choice != "required" => {
            ApiError::invalid(at, format!("`tool_choice` must be none or auto, not `{choice}`"))
        }
        Value::String(_) | Value::Object(_) if tools.is_empty() => {
            ApiError::invalid(at, "`tool_choice` needs `tools`")
        }
        Value::String(_) | Value::Object(_) => {
            ApiError::unsupported(at, "`tool_choice` must be none or auto: a call cannot be forced yet")
        }
        other => type_error(at, "a string or an object", other),
    }
}

fn tool(value: Value, at: &str) -> Result<Tool, ApiError> {
    let kind = value.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("function") => {}
        Some(other) => {
            let at = format!("{at}.type");
            return Err(ApiError::unsupported(&at, format!("`{at}` must be `function`, not `{other}`")));
        }
        None if value.is_object() => {
            return Err(ApiError::invalid(format!("{at}.type"), format!("`{at}.type` must be `function`")));
        }
        None => return Err(type_error(at, "an object", &value)),
    }
    let mut fields = Fields::open(value, at, &[FIELDS])?;
    let function = fields.nested("function", FUNCTION)?;
    function_of(fields.required("function", function)?)
}

fn function_of(mut fields: Fields) -> Result<Tool, ApiError> {
    let name = fields.text("name")?;
    let name = fields.required("name", name)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let at = fields.at("name");
        let message = format!("`{at}` must have between 1 and {NAME_BYTES_MAX} bytes");
        return Err(ApiError::invalid(at, message));
    }
    fields.flag("strict")?;
    let parameters = fields.object("parameters")?.map(Value::Object);
    Ok(Tool { name, description: fields.text("description")?, parameters })
}
