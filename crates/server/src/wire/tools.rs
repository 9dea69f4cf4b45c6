//! Tool definitions and `tool_choice`.

use serde_json::Value;

use super::fields::{Field, Fields, honoured, type_error};
use super::tool_choice;
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
    let Some(choice) = tool_choice::read(fields.value("tool_choice"), !list.is_empty())? else {
        return Ok(Tools::default());
    };
    choice.check(list.iter().map(|tool| tool.name.as_str()))?;
    let list = list.into_iter().filter(|tool| choice.allows(&tool.name)).collect();
    Ok(Tools { list, parallel, choice: choice.call })
}

/// Reads the entries of `tools`.
pub fn list(values: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    if values.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("`tools` must have at most {TOOLS_MAX} entries")));
    }
    let tool = |(index, value)| tool(value, &format!("tools[{index}]"));
    values.into_iter().enumerate().map(tool).collect()
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
