//! The tools of Ollama's chats.

use serde_json::Value;

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured};
use crate::wire::tools::{NAME_BYTES_MAX, SchemaUse, TOOLS_MAX, Tool, ToolForm, Tools};

/// Fields of a tool.
pub const TOOL: &[Field] =
    &[honoured("type", "`function`, also when absent"), honoured("function", "the function's definition")];

/// Fields of a tool's `function`.
pub const FUNCTION: &[Field] = &[
    honoured("name", "the function's name"),
    honoured("description", "passed to the chat template"),
    honoured("parameters", "a JSON schema; passed to the chat template"),
];

/// Takes `tools` out of a body.
pub fn read(fields: &mut Fields) -> Result<Tools, ApiError> {
    let values = fields.list("tools")?.unwrap_or_default();
    if values.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("`tools` must have at most {TOOLS_MAX} entries")));
    }
    let tool = |(index, value)| tool(value, &format!("tools[{index}]"));
    let list = values.into_iter().enumerate().map(tool).collect::<Result<_, _>>()?;
    Ok(Tools { list, ..Tools::default() })
}

fn tool(value: Value, at: &str) -> Result<Tool, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[TOOL])?;
    if fields.text("type")?.is_some_and(|kind| kind != "function" && !kind.is_empty()) {
        let at = fields.at("type");
        return Err(ApiError::unsupported(&at, format!("`{at}` must be `function`")));
    }
    let at = fields.at("function");
    let function = fields.value("function");
    let mut function = Fields::tolerant(fields.required("function", function)?, &at, &[FUNCTION])?;
    let name = function.text("name")?;
    let name = function.required("name", name)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let at = function.at("name");
        let message = format!("`{at}` must have between 1 and {NAME_BYTES_MAX} bytes");
        return Err(ApiError::invalid(at, message));
    }
    Ok(Tool {
        name,
        description: function.text("description")?,
        parameters: function.object("parameters")?.map(Value::Object),
        schema: SchemaUse::Shown,
        form: ToolForm::Function,
    })
}
