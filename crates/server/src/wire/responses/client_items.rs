//! Calls of tools that the client runs, and their outputs, as items of the input.
//!
//! Invariant: an output is text for the model, or an image.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::input_item::{CalledTool, InputItem};
use crate::error::ApiError;
use crate::wire::client_tools::ClientTool;
use crate::wire::fields::{Field, Fields, harmless, honoured, type_error};
use crate::wire::media::{self, MediaKind, Part};

/// Fields of what a shell's command returned.
pub const SHELL_OUTPUT: &[Field] = &[
    honoured("stdout", "what it wrote"),
    honoured("stderr", "what it wrote of errors"),
    honoured("outcome", "its exit code, or that it took too long"),
    harmless("created_by", "not part of the prompt"),
];

/// Fields of a command's `outcome`.
pub const OUTCOME: &[Field] = &[honoured("type", "`exit` or `timeout`"), honoured("exit_code", "of `exit`")];

/// Fields of the screenshot of a computer.
pub const SCREENSHOT: &[Field] = &[
    honoured("type", "`computer_screenshot`"),
    honoured("image_url", "a `data:` URL, or an `https:` or `file:` URL that the server allows"),
    harmless("file_id", "this server keeps no files; a note stands for it"),
    harmless("detail", "the model's processor chooses the size"),
];

/// An item of this type, if it is a call or the output of a tool that the client runs.
pub fn item(kind: &str, fields: &mut Fields) -> Result<Option<InputItem>, ApiError> {
    Ok(Some(match kind {
        "local_shell_call" => call(ClientTool::LocalShell, "action", fields)?,
        "shell_call" => call(ClientTool::Shell, "action", fields)?,
        "apply_patch_call" => call(ClientTool::ApplyPatch, "operation", fields)?,
        "computer_call" => computer_call(fields)?,
        "local_shell_call_output" => {
            let call_id = fields.text("call_id")?;
            let id = fields.text("id")?;
            let call_id = fields.required("call_id", call_id.or(id))?;
            let text = fields.text("output")?.unwrap_or_default();
            InputItem::Output { call_id, parts: vec![Part::Text(text)] }
        }
        "shell_call_output" => output(fields, shell_output)?,
        "apply_patch_call_output" => output(fields, patch_output)?,
        "computer_call_output" => output(fields, screenshot)?,
        _ => return Ok(None),
    }))
}

/// The ids of local shells' calls by the ids of their items, to which outputs may refer.
pub fn call_ids(input: &[Value]) -> BTreeMap<String, String> {
    let of = |item: &Value| {
        let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
        let is_call = item.get("type").and_then(Value::as_str) == Some("local_shell_call");
        Some((text("id")?, text("call_id")?)).filter(|_| is_call)
    };
    input.iter().filter_map(of).collect()
}

fn call(tool: ClientTool, name: &str, fields: &mut Fields) -> Result<InputItem, ApiError> {
    let call_id = fields.text("call_id")?;
    let call_id = fields.required("call_id", call_id)?;
    let inner = fields.object(name)?;
    let inner = fields.required(name, inner)?;
    let arguments = tool.arguments(Map::from_iter([(name.to_owned(), Value::Object(inner))]));
    Ok(InputItem::Call { call_id, tool: CalledTool::Client(tool), arguments: arguments.to_string() })
}

/// A call of several actions, or of one as of `computer_use_preview`.
fn computer_call(fields: &mut Fields) -> Result<InputItem, ApiError> {
    let Some(actions) = fields.list("actions")? else {
        return call(ClientTool::ComputerPreview, "action", fields);
    };
    let call_id = fields.text("call_id")?;
    let call_id = fields.required("call_id", call_id)?;
    let tool = ClientTool::Computer;
    let arguments = tool.arguments(Map::from_iter([("actions".to_owned(), Value::Array(actions))]));
    Ok(InputItem::Call { call_id, tool: CalledTool::Client(tool), arguments: arguments.to_string() })
}

fn output(
    fields: &mut Fields,
    read: impl FnOnce(&mut Fields) -> Result<Part, ApiError>,
) -> Result<InputItem, ApiError> {
    let call_id = fields.text("call_id")?;
    let call_id = fields.required("call_id", call_id)?;
    Ok(InputItem::Output { call_id, parts: vec![read(fields)?] })
}

fn shell_output(fields: &mut Fields) -> Result<Part, ApiError> {
    let at = fields.at("output");
    let list = match fields.value("output") {
        Some(Value::String(text)) => return Ok(Part::Text(text)),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(type_error(&at, "a list", &other)),
        None => Vec::new(),
    };
    let of = |(index, value)| command_output(value, &format!("{at}[{index}]"));
    let texts: Vec<String> = list.into_iter().enumerate().map(of).collect::<Result<_, _>>()?;
    Ok(Part::Text(texts.join("\n\n")))
}

/// What a command wrote, and its exit code unless it is 0.
fn command_output(value: Value, at: &str) -> Result<String, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[SHELL_OUTPUT])?;
    let mut lines =
        vec![fields.text("stdout")?.unwrap_or_default(), fields.text("stderr")?.unwrap_or_default()];
    let outcome_at = fields.at("outcome");
    if let Some(outcome) = fields.value("outcome") {
        let mut outcome = Fields::tolerant(outcome, &outcome_at, &[OUTCOME])?;
        let is_timeout = outcome.text("type")?.as_deref() == Some("timeout");
        match outcome.integer("exit_code")? {
            _ if is_timeout => lines.push("The command took too long and was ended.".to_owned()),
            Some(0) | None => {}
            Some(code) => lines.push(format!("The exit code is {code}.")),
        }
    }
    lines.retain(|line| !line.is_empty());
    Ok(lines.join("\n"))
}

fn patch_output(fields: &mut Fields) -> Result<Part, ApiError> {
    let output = fields.text("output")?.filter(|output| !output.is_empty());
    let status = match fields.text("status")?.as_deref() {
        Some("failed") => "The patch was not applied.",
        _ => "The patch was applied.",
    };
    Ok(Part::Text(output.map_or_else(|| status.to_owned(), |output| format!("{status}\n{output}"))))
}

fn screenshot(fields: &mut Fields) -> Result<Part, ApiError> {
    let at = fields.at("output");
    let output = fields.value("output");
    let mut output = Fields::tolerant(fields.required("output", output)?, &at, &[SCREENSHOT])?;
    let field = output.at("image_url");
    match output.text("image_url")? {
        Some(url) => media::of_url(MediaKind::Image, url, field).map(Part::Media),
        None => Ok(Part::Text("[screenshot: this server keeps no files]".to_owned())),
    }
}
