//! The tools of the Responses API.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::wire::client_tools::ClientTool;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured};
use crate::wire::input_grammar::{self, InputGrammar};
use crate::wire::mcp;
use crate::wire::web_search;

/// Fields of a tool.
pub const FIELDS: &[Field] = &[
    honoured(
        "type",
        "`function`, `custom`, `namespace`, `tool_search`, `mcp`, `web_search`, or of a tool that the client runs: `local_shell`, `shell`, \
         `apply_patch`, `computer` or `computer_use_preview`; others are left out",
    ),
    honoured("name", "the tool's name"),
    honoured("description", "passed to the chat template"),
    honoured("parameters", "a JSON schema of a function's arguments"),
    honoured(
        "format",
        "of a custom tool: `text`, or the grammar that its input matches, in formats of calls that have one",
    ),
    honoured("tools", "of a namespace"),
    honoured(
        "strict",
        "true: the arguments of a call match the schema, in formats whose calls have a marker",
    ),
    honoured("environment", "of a shell: `local`, with its skills; of a computer, which system it has"),
    honoured("display_width", "of a computer: given to the model"),
    honoured("display_height", "of a computer: given to the model"),
    harmless("allowed_callers", "only the model calls tools"),
    harmless("execution", "the client searches"),
    harmless("defer_loading", "of a tool that a search found"),
    honoured("filters", "of a search of the web: `allowed_domains` and `blocked_domains`"),
    honoured("external_web_access", "of a search of the web: false switches it off"),
    harmless("search_context_size", "of a search of the web"),
    harmless("user_location", "of a search of the web"),
    harmless("search_content_types", "of a search of the web"),
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
        grammar: Option<InputGrammar>,
    },
    /// Functions that are called by their names, with the namespace beside it.
    Namespace {
        /// Its name.
        name: String,
        /// Its functions.
        tools: Vec<FunctionTool>,
    },
    /// A tool that the client runs.
    Client {
        /// Which.
        tool: ClientTool,
        /// What the model is given.
        description: String,
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
    /// Whether the arguments of a call must match the schema.
    pub strict: Strictness,
}

/// Whether the arguments of a call must match the schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// As the model reads it.
    #[default]
    Lenient,
    /// They must.
    Strict,
}

/// Fields of a shell's `environment`.
pub const ENVIRONMENT: &[Field] = &[honoured("type", "`local`"), honoured("skills", "given to the model")];

/// Fields of a local skill.
pub const SKILL: &[Field] = &[
    honoured("name", "its name"),
    honoured("description", "what it is for"),
    honoured("path", "where the client has it"),
];

/// The name by which the model knows the search for tools.
pub const SEARCH: &str = "tool_search";

/// Reads tools.
pub fn read(list: &[Value]) -> Result<Vec<ResponsesTool>, ApiError> {
    let mut tools = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let at = format!("tools[{index}]");
        // Tools of MCP servers are read by `mcp`, and the search of the web by `web_search`.
        if mcp::is_mcp(value) || web_search::is_search(value) {
            continue;
        }
        let Some(tool) = tool(value.clone(), &at)? else { continue };
        check_name(&tool, &tools, &at)?;
        tools.push(tool);
    }
    Ok(tools)
}

/// A call by a name is a call of one tool.
fn check_name(tool: &ResponsesTool, before: &[ResponsesTool], at: &str) -> Result<(), ApiError> {
    let is_of_client = |tool: &&ResponsesTool| matches!(tool, ResponsesTool::Client { .. });
    let taken = before.iter().find(|other| other.name() == tool.name());
    match taken.filter(|other| is_of_client(other) || is_of_client(&tool)) {
        None => Ok(()),
        Some(_) => {
            let name = tool.name();
            Err(ApiError::invalid(at, format!("`{at}` has the name `{name}`, as another one of `tools` has")))
        }
    }
}

impl ResponsesTool {
    /// Its name; of a search, the name that the model knows.
    pub fn name(&self) -> &str {
        match self {
            Self::Function(function) => &function.name,
            Self::Custom { name, .. } | Self::Namespace { name, .. } => name,
            Self::Client { tool, .. } => tool.name(),
            Self::Search { .. } => SEARCH,
        }
    }
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
            grammar: input_grammar::read(&mut fields)?,
        },
        "namespace" => ResponsesTool::Namespace { name: name(&mut fields)?, tools: inside(&mut fields)? },
        "tool_search" => ResponsesTool::Search {
            description: fields.text("description")?,
            parameters: fields.object("parameters")?,
        },
        other => match ClientTool::of_type(other) {
            Some(tool) => ResponsesTool::Client { tool, description: description(tool, &mut fields)? },
            None => {
                count_unknown(&format!("{at}.type={other}"));
                return Ok(None);
            }
        },
    }))
}

fn description(tool: ClientTool, fields: &mut Fields) -> Result<String, ApiError> {
    let mut text = tool.description().to_owned();
    match tool {
        ClientTool::LocalShell | ClientTool::ApplyPatch => {}
        ClientTool::Shell => {
            let at = fields.at("environment");
            if let Some(environment) = fields.value("environment") {
                skills(Fields::tolerant(environment, &at, &[ENVIRONMENT])?, &mut text)?;
            }
        }
        ClientTool::Computer | ClientTool::ComputerPreview => {
            let pixels = (0, 1 << 16);
            let sides = (fields.count("display_width", pixels)?, fields.count("display_height", pixels)?);
            if let (Some(width), Some(height)) = sides {
                text.push_str(&format!(" The screen has {width}x{height} pixels."));
            }
            if let Some(system) = fields.text("environment")? {
                text.push_str(&format!(" The system is {system}."));
            }
        }
    }
    Ok(text)
}

/// Adds the skills of a local environment to a description. A container cannot be had.
fn skills(mut fields: Fields, text: &mut String) -> Result<(), ApiError> {
    let kind = fields.text("type")?;
    if kind.as_deref() != Some("local") {
        let at = fields.at("type");
        let message = format!("`{at}` must be `local`: this server has no containers");
        return Err(ApiError::unsupported(&at, message));
    }
    let at = fields.at("skills");
    for (index, skill) in fields.list("skills")?.unwrap_or_default().into_iter().enumerate() {
        let mut skill = Fields::tolerant(skill, &format!("{at}[{index}]"), &[SKILL])?;
        let (name, path) = (skill.text("name")?, skill.text("path")?);
        let (name, path) = (skill.required("name", name)?, skill.required("path", path)?);
        let about = skill.text("description")?.unwrap_or_default();
        text.push_str(&format!("\nSkill `{name}` at {path}: {about}"));
    }
    Ok(())
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
        strict: match fields.flag("strict")? {
            Some(true) => Strictness::Strict,
            Some(false) | None => Strictness::Lenient,
        },
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
