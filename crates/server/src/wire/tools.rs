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
    honoured(
        "strict",
        "true: the arguments of a call match the schema, in formats whose calls have a marker",
    ),
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
    /// Whether arguments must match it.
    pub schema: SchemaUse,
}

/// What the schema of a tool's arguments is used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SchemaUse {
    /// The model reads it.
    #[default]
    Shown,
    /// The arguments match it.
    Enforced,
}

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

/// The tools that the model may call, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    /// Empty without tools, or with `tool_choice` of `none`.
    pub list: Vec<Tool>,
    /// `parallel_tool_calls`.
    pub parallel: ParallelCalls,
    /// `tool_choice`.
    pub choice: ToolChoice,
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
    let list = list(fields.list("tools")?.unwrap_or_default())?;
    let parallel = match fields.flag("parallel_tool_calls")? {
        Some(false) => ParallelCalls::Refuse,
        Some(true) | None => ParallelCalls::Allow,
    };
    let Some(choice) = choice(fields.value("tool_choice"), !list.is_empty())? else {
        return Ok(Tools::default());
    };
    Ok(Tools { list, parallel, choice })
}

/// Reads the entries of `tools`.
pub fn list(values: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    if values.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("`tools` must have at most {TOOLS_MAX} entries")));
    }
    let tool = |(index, value)| tool(value, &format!("tools[{index}]"));
    values.into_iter().enumerate().map(tool).collect()
}

/// Reads `tool_choice`. `None`: no tool may be called.
pub fn choice(value: Option<Value>, has_tools: bool) -> Result<Option<ToolChoice>, ApiError> {
    let at = "tool_choice";
    let choice = match &value {
        None => ToolChoice::Auto,
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => return Ok(None),
            "required" => ToolChoice::Required,
            other => {
                let message = format!("`{at}` must be none, auto, required or an object, not `{other}`");
                return Err(ApiError::invalid(at, message));
            }
        },
        // Chat completions have the name inside `function`, the Responses API beside the type.
        Some(Value::Object(object)) => {
            let function = object.get("function").and_then(Value::as_object).unwrap_or(object);
            let name = function.get("name").and_then(Value::as_str);
            match (object.get("type").and_then(Value::as_str), name) {
                (Some("function") | None, Some(name)) => ToolChoice::Function(name.to_owned()),
                (Some("function") | None, None) => {
                    return Err(ApiError::invalid(at, format!("`{at}` must name a function")));
                }
                (Some(other), _) => {
                    let message = format!("`{at}.type` must be `function`, not `{other}`");
                    return Err(ApiError::unsupported(at, message));
                }
            }
        }
        Some(other) => return Err(type_error(at, "a string or an object", other)),
    };
    if choice != ToolChoice::Auto && !has_tools {
        return Err(ApiError::invalid(at, format!("`{at}` needs `tools`")));
    }
    Ok(Some(choice))
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
    let schema = match fields.flag("strict")? {
        Some(true) => SchemaUse::Enforced,
        Some(false) | None => SchemaUse::Shown,
    };
    let parameters = fields.object("parameters")?.map(Value::Object);
    Ok(Tool { name, description: fields.text("description")?, parameters, schema })
}
