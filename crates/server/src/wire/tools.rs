//! Tool definitions and `tool_choice`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{Field, Fields, honoured, type_error};
use super::input_grammar::{self, InputGrammar};
use super::mcp::{self, McpServer};
use super::tool_choice::{self, ToolChoice};
use crate::error::ApiError;

/// Fields of a tool.
pub const FIELDS: &[Field] = &[
    honoured("type", "`function`, `custom` or `mcp`"),
    honoured("function", "the function's definition"),
    honoured("custom", "the definition of a tool whose input is text"),
];

/// Fields of a tool's `custom`.
pub const CUSTOM: &[Field] = &[
    honoured("name", "the tool's name"),
    honoured("description", "passed to the chat template"),
    honoured("format", "`text`, or the grammar that the input matches, in formats of calls that have one"),
];

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
    /// What the tool takes.
    pub form: ToolForm,
}

/// What a tool takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolForm {
    /// Arguments in JSON.
    #[default]
    Function,
    /// Text.
    Custom {
        /// The grammar of the text.
        grammar: Option<InputGrammar>,
    },
}

/// How calls are returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallForms {
    /// The names of custom tools.
    pub custom: BTreeSet<String>,
    /// Where calls stand in a message.
    pub shape: CallShape,
}

/// Where calls stand in a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallShape {
    /// In `tool_calls`.
    #[default]
    Tools,
    /// In `function_call`, as for the older `functions`.
    Function,
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

/// The tools that the model may call, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    /// Empty without tools, or with `tool_choice` of `none`.
    pub list: Vec<Tool>,
    /// `parallel_tool_calls`.
    pub parallel: ParallelCalls,
    /// `tool_choice`.
    pub choice: ToolChoice,
    /// Where calls stand in the answer.
    pub shape: CallShape,
    /// The tools that this server runs. None with `tool_choice` of `none`.
    pub mcp: McpTools,
}

/// The tools of MCP servers that a request has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpTools {
    /// The servers that it names.
    pub servers: Vec<McpServer>,
    /// Whether it gets those that the configuration says.
    pub auto: bool,
    /// The names of those that may be called; `None` for all.
    pub allowed: Option<Vec<String>>,
}

impl McpTools {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && !self.auto
    }

    /// Whether a tool may be called, by the name that the model knows.
    pub fn allows(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|known| known == name))
    }
}

impl Tools {
    /// How calls are returned.
    pub fn forms(&self) -> CallForms {
        let custom = self.list.iter().filter(|tool| matches!(tool.form, ToolForm::Custom { .. }));
        CallForms { custom: custom.map(|tool| tool.name.clone()).collect(), shape: self.shape }
    }
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
    let (tools, mut mcp) = own_and_mcp(fields)?;
    let functions = functions(fields.list("functions")?.unwrap_or_default())?;
    let parallel = match fields.flag("parallel_tool_calls")? {
        Some(false) => ParallelCalls::Refuse,
        Some(true) | None => ParallelCalls::Allow,
    };
    let (choice, called) = (fields.value("tool_choice"), fields.value("function_call"));
    // A message of the older shape has one call.
    let (list, choice, parallel, shape) = match (functions.is_empty(), tools.is_empty()) {
        (true, _) => (tools, choice, parallel, CallShape::Tools),
        (false, true) => (functions, called, ParallelCalls::Refuse, CallShape::Function),
        (false, false) => {
            return Err(ApiError::invalid(
                "functions",
                "`functions` and `tools` do not go together; use `tools`",
            ));
        }
    };
    let named = |error: ApiError| match shape {
        CallShape::Tools => error,
        CallShape::Function => error.about("tool_choice", "function_call"),
    };
    let has_tools = !list.is_empty() || !mcp.is_empty();
    let Some(choice) = tool_choice::read(choice, has_tools).map_err(named)? else {
        return Ok(Tools::default());
    };
    if mcp.is_empty() {
        choice.check(list.iter().map(|tool| tool.name.as_str())).map_err(named)?;
    }
    mcp.allowed.clone_from(&choice.allowed);
    // The engine names the newer field.
    if let (CallShape::Function, tool_choice::ToolChoice::Function(name)) = (shape, &choice.call)
        && list.iter().all(|tool| tool.name != *name)
    {
        let message = format!("`function_call` names `{name}`, which is not among the tools");
        return Err(ApiError::invalid("function_call", message));
    }
    let list = list.into_iter().filter(|tool| choice.allows(&tool.name)).collect();
    Ok(Tools { list, parallel, choice: choice.call, shape, mcp })
}

/// The tools of a request, and those that this server runs: `"auto"` in place of the list, or as an entry, and entries of the
/// type `mcp`.
fn own_and_mcp(fields: &mut Fields) -> Result<(Vec<Tool>, McpTools), ApiError> {
    let is_auto = |value: &Value| value.as_str() == Some("auto");
    let mut values = match fields.value("tools") {
        Some(Value::Array(values)) => values,
        Some(value) if is_auto(&value) => vec![value],
        Some(other) => return Err(type_error("tools", "a list or `auto`", &other)),
        None => Vec::new(),
    };
    // Errors name the places in the request.
    let servers = mcp::read_all(&values)?;
    let auto = values.iter().any(is_auto);
    values.retain(|value| !is_auto(value) && !mcp::is_mcp(value));
    Ok((list(values)?, McpTools { servers, auto, allowed: None }))
}

/// Reads the entries of `tools`.
pub fn list(values: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    if values.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("`tools` must have at most {TOOLS_MAX} entries")));
    }
    let tool = |(index, value)| tool(value, &format!("tools[{index}]"));
    values.into_iter().enumerate().map(tool).collect()
}

/// Reads the entries of the older `functions`.
fn functions(values: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    if values.len() > TOOLS_MAX {
        return Err(ApiError::invalid(
            "functions",
            format!("`functions` must have at most {TOOLS_MAX} entries"),
        ));
    }
    let function =
        |(index, value)| function_of(Fields::open(value, &format!("functions[{index}]"), &[FUNCTION])?);
    values.into_iter().enumerate().map(function).collect()
}

fn tool(value: Value, at: &str) -> Result<Tool, ApiError> {
    let kind = value.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("function") => {}
        Some("custom") => {
            let mut fields = Fields::open(value, at, &[FIELDS])?;
            fields.text("type")?;
            let custom = fields.nested("custom", CUSTOM)?;
            let custom = custom_of(fields.required("custom", custom)?)?;
            fields.refuse_rest("does not belong to a custom tool")?;
            return Ok(custom);
        }
        Some(other) => {
            let at = format!("{at}.type");
            return Err(ApiError::unsupported(
                &at,
                format!("`{at}` must be `function` or `custom`, not `{other}`"),
            ));
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

fn custom_of(mut fields: Fields) -> Result<Tool, ApiError> {
    let name = name_of(&mut fields)?;
    let description = fields.text("description")?;
    let form = ToolForm::Custom { grammar: input_grammar::read(&mut fields)? };
    Ok(Tool { name, description, parameters: None, schema: SchemaUse::Shown, form })
}

fn name_of(fields: &mut Fields) -> Result<String, ApiError> {
    let name = fields.text("name")?;
    let name = fields.required("name", name)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let at = fields.at("name");
        let message = format!("`{at}` must have between 1 and {NAME_BYTES_MAX} bytes");
        return Err(ApiError::invalid(at, message));
    }
    Ok(name)
}

fn function_of(mut fields: Fields) -> Result<Tool, ApiError> {
    let name = name_of(&mut fields)?;
    let schema = match fields.flag("strict")? {
        Some(true) => SchemaUse::Enforced,
        Some(false) | None => SchemaUse::Shown,
    };
    let parameters = fields.object("parameters")?.map(Value::Object);
    let description = fields.text("description")?;
    Ok(Tool { name, description, parameters, schema, form: ToolForm::Function })
}
