//! Anthropic's tools and `tool_choice`.

use serde_json::Value;

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured};
use crate::wire::tools::{NAME_BYTES_MAX, ParallelCalls, SchemaUse, TOOLS_MAX, ToolChoice};

/// Fields of a tool.
pub const FIELDS: &[Field] = &[
    honoured("name", "the function's name"),
    honoured("description", "passed to the chat template"),
    honoured("input_schema", "a JSON schema; a tool without one is a server's own, and is left out"),
    honoured("defer_loading", "true leaves the tool out of the prompt until a `tool_reference` names it"),
    honoured("type", "`custom`, or the type of a server's own tool"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("eager_input_streaming", "arguments are streamed as they come"),
    honoured(
        "strict",
        "true: the arguments of a call match the schema, in formats whose calls have a marker",
    ),
    harmless("max_uses", "of a server's own tool"),
    harmless("input_examples", "not part of the prompt"),
    harmless("allowed_callers", "only the model calls tools"),
];

/// Fields of `tool_choice`.
pub const CHOICE: &[Field] = &[
    honoured("type", "`auto`, `any`, `tool` or `none`"),
    honoured("name", "of the tool that must be called"),
    honoured("disable_parallel_tool_use", "true ends the message after its first call"),
];

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The function's name.
    pub name: String,
    /// The function's description.
    pub description: Option<String>,
    /// A JSON schema of the arguments.
    pub input_schema: Value,
    /// Whether the prompt shows it at the start.
    pub loading: Loading,
    /// What its schema is used for.
    pub schema: SchemaUse,
}

/// Whether the prompt shows a tool at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    /// It does.
    Immediate,
    /// Where a `tool_reference` names it.
    Deferred,
}

/// Whether tools may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolUse {
    /// As this says.
    Allowed(ToolChoice, ParallelCalls),
    /// Not at all.
    #[default]
    None,
}

/// Takes `tools` and `tool_choice`.
pub fn read(fields: &mut Fields) -> Result<(Vec<ToolDefinition>, ToolUse), ApiError> {
    let list = fields.list("tools")?.unwrap_or_default();
    if list.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("tools: at most {TOOLS_MAX} entries")));
    }
    let mut tools = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        tools.extend(tool(value, &format!("tools[{index}]"))?);
    }
    Ok((tools, choice(fields)?))
}

/// A server's own tool, as web search, has no schema: the model answers without it.
fn tool(value: Value, at: &str) -> Result<Option<ToolDefinition>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[FIELDS])?;
    let Some(schema) = fields.object("input_schema")? else {
        if fields.text("type")?.is_some_and(|kind| kind != "custom") {
            return Ok(None);
        }
        let at = fields.at("input_schema");
        return Err(ApiError::invalid(&at, format!("{at}: Field required")));
    };
    let name = fields.text("name")?;
    let name = fields.required("name", name)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let at = fields.at("name");
        let message = format!("{at}: must have between 1 and {NAME_BYTES_MAX} bytes");
        return Err(ApiError::invalid(at, message));
    }
    let loading = match fields.flag("defer_loading")? {
        Some(true) => Loading::Deferred,
        Some(false) | None => Loading::Immediate,
    };
    let schema_use = match fields.flag("strict")? {
        Some(true) => SchemaUse::Enforced,
        Some(false) | None => SchemaUse::Shown,
    };
    let description = fields.text("description")?;
    let input_schema = Value::Object(schema);
    Ok(Some(ToolDefinition { name, description, input_schema, loading, schema: schema_use }))
}

fn choice(fields: &mut Fields) -> Result<ToolUse, ApiError> {
    let Some(value) = fields.value("tool_choice") else {
        return Ok(ToolUse::Allowed(ToolChoice::Auto, ParallelCalls::Allow));
    };
    let mut fields = Fields::tolerant(value, "tool_choice", &[CHOICE])?;
    let parallel = match fields.flag("disable_parallel_tool_use")? {
        Some(true) => ParallelCalls::Refuse,
        Some(false) | None => ParallelCalls::Allow,
    };
    let kind = fields.text("type")?;
    match fields.required("type", kind)?.as_str() {
        "auto" => Ok(ToolUse::Allowed(ToolChoice::Auto, parallel)),
        "none" => Ok(ToolUse::None),
        "any" => Ok(ToolUse::Allowed(ToolChoice::Required, parallel)),
        "tool" => {
            let name = fields.text("name")?;
            Ok(ToolUse::Allowed(ToolChoice::Function(fields.required("name", name)?), parallel))
        }
        other => Err(ApiError::invalid(
            "tool_choice.type",
            format!("tool_choice.type: must be `auto`, `any`, `tool` or `none`, not `{other}`"),
        )),
    }
}
