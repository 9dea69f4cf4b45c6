//! The tools of the Responses API.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured};

/// Fields of a tool.
pub const FIELDS: &[Field] = &[
    honoured("type", "`function`, `custom`, `namespace` or `tool_search`; others are left out"),
    honoured("name", "the tool's name"),
    honoured("description", "passed to the chat template"),
    honoured("parameters", "a JSON schema of a function's arguments"),
    honoured("format", "of a custom tool: its grammar is shown to the model"),
    honoured("tools", "of a namespace"),
    harmless("strict", "arguments follow the model's own reading of the schema"),
    harmless("execution", "the client searches"),
    harmless("defer_loading", "of a tool that a search found"),
    harmless("external_web_access", "this server does not search"),
    harmless("search_content_types", "this server does not search"),
];

/// A tool.
#[derive(Debug, Clone, PartialEq)]
pub enum ResponsesTool {
    /// A function.
    Function(FunctionTool),
    /// A tool whose input is text.
    Custom {
        /// Its name.
        name: String,
        /// Its description.
        description: Option<String>,
        /// The grammar of its input.
        grammar: Option<String>,
    },
    /// Functions that are called by their names, with the namespace beside it.
    Namespace {
        /// Its name.
        name: String,
        /// Its functions.
        tools: Vec<FunctionTool>,
    },
    /// The search for tools, by the client.
    Search {
        /// Its description.
        description: Option<String>,
        /// A JSON schema of the arguments.
        parameters: Option<Map<String, Value>>,
    },
}

/// A function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTool {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// A JSON schema of the arguments.
    pub parameters: Option<Map<String, Value>>,
}

/// Reads tools.
pub fn read(list: &[Value]) -> Result<Vec<ResponsesTool>, ApiError> {
    let mut tools = Vec::new();
    for (index, value) in list.iter().enumerate() {
        tools.extend(tool(value.clone(), &format!("tools[{index}]"))?);
    }
    Ok(tools)
}

fn tool(value: Value, at: &str) -> Result<Option<ResponsesTool>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[FIELDS])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    Ok(Some(match kind.as_str() {
        "function" => ResponsesTool::Function(function(&mut fields)?),
        "custom" => ResponsesTool::Custom {
            name: name(&mut fields)?,
            description: fields.text("description")?,
            grammar: fields
                .object("format")?
                .and_then(|format| format.get("definition").and_then(Value::as_str).map(str::to_owned)),
        },
        "namespace" => ResponsesTool::Namespace { name: name(&mut fields)?, tools: inside(&mut fields)? },
        "tool_search" => ResponsesTool::Search {
            description: fields.text("description")?,
            parameters: fields.object("parameters")?,
        },
        other => {
            count_unknown(&format!("{at}.type={other}"));
            return Ok(None);
        }
    }))
}

fn inside(fields: &mut Fields) -> Result<Vec<FunctionTool>, ApiError> {
    let at = fields.at("tools");
    let list = fields.list("tools")?.unwrap_or_default();
    let tool = |(index, value): (usize, Value)| {
        function(&mut Fields::tolerant(value, &format!("{at}[{index}]"), &[FIELDS])?)
    };
    list.into_iter().enumerate().map(tool).collect()
}

fn function(fields: &mut Fields) -> Result<FunctionTool, ApiError> {
    Ok(FunctionTool {
        name: name(fields)?,
        description: fields.text("description")?,
        parameters: fields.object("parameters")?,
    })
}

fn name(fields: &mut Fields) -> Result<String, ApiError> {
    let name = fields.text("name")?;
    let name = fields.required("name", name)?;
    if name.is_empty() {
        let at = fields.at("name");
        return Err(ApiError::invalid(&at, format!("`{at}` must not be empty")));
    }
    Ok(name)
}
