//! Anthropic's tools and `tool_choice`.

use serde_json::Value;

use super::client_tools::{self, Display, Schemaless, Zoom};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured};
use crate::wire::tool_choice::ToolChoice;
use crate::wire::tools::{NAME_BYTES_MAX, ParallelCalls, SchemaUse, TOOLS_MAX};

/// Fields of a tool.
pub const FIELDS: &[Field] = &[
    honoured("name", "the function's name"),
    honoured("description", "passed to the chat template"),
    honoured(
        "input_schema",
        "a JSON schema; without one, tools of types `bash_…`, `text_editor_…`, `memory_…` and `computer_…` have the \
         documented one; `web_search_…` is run where \
         [a tool searches](mcp.md#web-search), and others that Anthropic's servers run are left out",
    ),
    honoured("defer_loading", "true leaves the tool out of the prompt until a `tool_reference` names it"),
    honoured("type", "`custom`, or the type of a tool without a schema"),
    honoured("display_width_px", "of a computer: given to the model"),
    honoured("display_height_px", "of a computer: given to the model"),
    honoured("enable_zoom", "of a computer: true adds the action `zoom`"),
    harmless("display_number", "of a computer: the client knows it"),
    harmless("max_characters", "of a text editor: the client cuts what it shows"),
    harmless("configs", "of a toolset"),
    harmless("mcp_server_name", "of a toolset of an MCP server"),
    harmless("default_config", "of a toolset of an MCP server"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("eager_input_streaming", "arguments are streamed as they come"),
    honoured(
        "strict",
        "true: the arguments of a call match the schema, in formats whose calls have a marker",
    ),
    honoured("max_uses", "of a search of the web"),
    honoured("allowed_domains", "of a search of the web"),
    honoured("blocked_domains", "of a search of the web"),
    harmless("user_location", "of a search of the web"),
    harmless("input_examples", "not part of the prompt"),
    harmless("allowed_callers", "only the model calls tools"),
];

/// Fields of `tool_choice`.
pub const CHOICE: &[Field] = &[
    honoured("type", "`auto`, `any`, `tool` or `none`"),
    honoured("name", "of the tool that must be called"),
    honoured("disable_parallel_tool_use", "true ends the message after its first call"),
];

/// Most pixels of a side of a computer's screen.
const PIXELS_MAX: usize = 1 << 16;

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

/// Reads `tools`, and takes `tool_choice`.
pub fn read(list: Vec<Value>, fields: &mut Fields) -> Result<(Vec<ToolDefinition>, ToolUse), ApiError> {
    if list.len() > TOOLS_MAX {
        return Err(ApiError::invalid("tools", format!("tools: at most {TOOLS_MAX} entries")));
    }
    let mut tools = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        tools.extend(tool(value, &format!("tools[{index}]"))?);
    }
    Ok((tools, choice(fields)?))
}

/// `None` for a tool that Anthropic's servers run, as web search: the model answers without it.
fn tool(value: Value, at: &str) -> Result<Option<ToolDefinition>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[FIELDS])?;
    let kind = fields.text("type")?.filter(|kind| kind != "custom");
    let description = fields.text("description")?;
    let Some(schema) = fields.object("input_schema")?.map(Value::Object) else {
        let Some(kind) = kind else {
            let at = fields.at("input_schema");
            return Err(ApiError::invalid(&at, format!("{at}: Field required")));
        };
        return match client_tools::of_type(&kind, &display(&mut fields)?) {
            Schemaless::Client { description, input_schema } => {
                definition(&mut fields, Some(description), input_schema).map(Some)
            }
            Schemaless::Server => Ok(None),
            Schemaless::Refused(why) => {
                let at = fields.at("type");
                Err(ApiError::unsupported(&at, format!("{at}: `{kind}`: {why}")))
            }
            Schemaless::Unknown => {
                count_unknown(&format!("{at}.type={kind}"));
                Ok(None)
            }
        };
    };
    definition(&mut fields, description, schema).map(Some)
}

fn display(fields: &mut Fields) -> Result<Display, ApiError> {
    Ok(Display {
        width: fields.count("display_width_px", (1, PIXELS_MAX))?,
        height: fields.count("display_height_px", (1, PIXELS_MAX))?,
        zoom: match fields.flag("enable_zoom")? {
            Some(true) => Zoom::Offered,
            Some(false) | None => Zoom::Absent,
        },
    })
}

fn definition(
    fields: &mut Fields,
    description: Option<String>,
    input_schema: Value,
) -> Result<ToolDefinition, ApiError> {
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
    Ok(ToolDefinition { name, description, input_schema, loading, schema: schema_use })
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
