//! Blocks whose text is made of several fields: documents, search results, and what tools of Anthropic's own servers
//! were called with and returned.
//!
//! Invariant: a block is rendered by its own fields alone, so that a conversation that a client replays has the same
//! prompt again. What has no text is counted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured, type_error};
use crate::wire::files::PDF_TYPE;
use crate::wire::media::{self, Part};
use crate::wire::pdf;

/// Between texts that become one.
const GAP: &str = "\n\n";
/// In the place of a document that is not text.
const NOT_TEXT: &str = "[document: this model reads text only]";

/// Fields of what a server's own tool returned.
pub const RESULT: &[Field] = &[
    honoured("type", "what the tool returned, by Anthropic's name"),
    honoured("text", "of a text"),
    honoured("title", "of a page that was found"),
    honoured("url", "of a page that was found or fetched"),
    honoured("page_age", "of a page that was found"),
    honoured("content", "of a fetched page its document; of a viewed file its text"),
    honoured("source", "of a document, a search result or an image"),
    honoured("context", "of a document"),
    honoured("stdout", "of code"),
    honoured("stderr", "of code"),
    honoured("return_code", "of code"),
    honoured("lines", "of an edited file"),
    honoured("is_file_update", "of a written file"),
    honoured("tool_references", "of a search for tools: their names"),
    honoured("tool_name", "of a tool reference"),
    honoured("error_code", "of a failure"),
    harmless("error_message", "the code says it"),
    harmless("encrypted_content", "not readable here"),
    harmless("encrypted_stdout", "not readable here"),
    harmless("retrieved_at", "not part of the prompt"),
    harmless("citations", "sources are not part of the prompt"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("file_type", "the content says it"),
    harmless("num_lines", "not part of the prompt"),
    harmless("start_line", "not part of the prompt"),
    harmless("total_lines", "not part of the prompt"),
    harmless("new_lines", "not part of the prompt"),
    harmless("new_start", "not part of the prompt"),
    harmless("old_lines", "not part of the prompt"),
    harmless("old_start", "not part of the prompt"),
];

/// The parts of a block of this type; `None` for a type that is not rendered here.
pub fn parts(kind: &str, fields: &mut Fields) -> Result<Option<Vec<Part>>, ApiError> {
    Ok(Some(match kind {
        "document" => document(fields)?,
        "search_result" => search_result(fields)?,
        "server_tool_use" | "mcp_tool_use" => call(kind, fields)?,
        "web_search_tool_result"
        | "web_fetch_tool_result"
        | "code_execution_tool_result"
        | "bash_code_execution_tool_result"
        | "text_editor_code_execution_tool_result"
        | "tool_search_tool_result"
        | "advisor_tool_result"
        | "mcp_tool_result" => tagged(kind, &[], results(fields)?),
        _ => return Ok(None),
    }))
}

/// A document with neither title nor context is its text alone.
fn document(fields: &mut Fields) -> Result<Vec<Part>, ApiError> {
    let (title, context) = (fields.text("title")?, fields.text("context")?);
    let mut inner = Vec::new();
    inner.extend(context.clone().map(Part::Text));
    for part in document_source(fields)? {
        media::push(&mut inner, part, GAP);
    }
    match (title, context) {
        (None, None) => Ok(inner),
        (title, _) => Ok(tagged("document", &[("title", title)], inner)),
    }
}

fn document_source(fields: &mut Fields) -> Result<Vec<Part>, ApiError> {
    let at = fields.at("source");
    let mut source = fields.object("source")?.unwrap_or_default();
    let kind = source.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match (kind.as_str(), source.remove("data"), source.remove("content")) {
        ("text", Some(Value::String(text)), _) => Ok(vec![Part::Text(text)]),
        ("content", _, Some(content)) => texts_and_images(content, &format!("{at}.content")),
        ("base64", Some(Value::String(data)), _) if is_pdf(&source) => {
            let at = format!("{at}.data");
            let bytes = STANDARD.decode(data.trim());
            let bytes = bytes.map_err(|_| ApiError::invalid(&at, format!("`{at}` must be base64")))?;
            Ok(vec![Part::Text(pdf::of_field(&bytes, &at)?)])
        }
        _ => Ok(vec![Part::Text(NOT_TEXT.to_owned())]),
    }
}

fn is_pdf(source: &Map<String, Value>) -> bool {
    source.get("media_type").and_then(Value::as_str) == Some(PDF_TYPE)
}

fn search_result(fields: &mut Fields) -> Result<Vec<Part>, ApiError> {
    let (title, source) = (fields.text("title")?, fields.text("source")?);
    let at = fields.at("content");
    let inner = match fields.value("content") {
        Some(content) => texts_and_images(content, &at)?,
        None => Vec::new(),
    };
    Ok(tagged("search_result", &[("title", title), ("source", source)], inner))
}

/// A text, or blocks of texts and images.
fn texts_and_images(content: Value, at: &str) -> Result<Vec<Part>, ApiError> {
    let list = match content {
        Value::String(text) => return Ok(vec![Part::Text(text)]),
        Value::Array(list) => list,
        other => return Err(type_error(at, "a string or a list of blocks", &other)),
    };
    let mut parts = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        let at = format!("{at}[{index}]");
        let mut fields = Fields::tolerant(value, &at, &[RESULT])?;
        match fields.text("type")?.as_deref() {
            Some("text") => {
                media::push(&mut parts, Part::Text(fields.text("text")?.unwrap_or_default()), GAP)
            }
            Some("image") => parts.push(Part::Media(media::of_anthropic(&mut fields)?)),
            other => count_unknown(&format!("{at}.type={}", other.unwrap_or_default())),
        }
    }
    Ok(parts)
}

/// A call of a tool that this server does not run.
fn call(kind: &str, fields: &mut Fields) -> Result<Vec<Part>, ApiError> {
    let name = fields.text("name")?;
    let server = fields.text("server_name")?;
    let input = Value::Object(fields.object("input")?.unwrap_or_default());
    Ok(tagged(kind, &[("name", name), ("server_name", server)], vec![Part::Text(input.to_string())]))
}

/// What a server's tool returned: a text, an object, or a list of objects.
fn results(fields: &mut Fields) -> Result<Vec<Part>, ApiError> {
    let at = fields.at("content");
    let list = match fields.value("content") {
        None => Vec::new(),
        Some(Value::String(text)) => return Ok(vec![Part::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(object) => vec![object],
    };
    let mut parts = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        for part in result(value, &format!("{at}[{index}]"))? {
            media::push(&mut parts, part, GAP);
        }
    }
    Ok(parts)
}

fn result(value: Value, at: &str) -> Result<Vec<Part>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[RESULT])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    let text = match kind.as_str() {
        "text" | "advisor_result" => fields.text("text")?,
        "web_search_result" => found_page(&mut fields)?,
        "web_fetch_result" => return fetched_page(&mut fields),
        "code_execution_result" | "bash_code_execution_result" => ran(&mut fields)?,
        "text_editor_code_execution_view_result" => fields.text("content")?,
        "text_editor_code_execution_create_result" => match fields.flag("is_file_update")? {
            Some(true) => Some("The file was overwritten.".to_owned()),
            Some(false) | None => Some("The file was created.".to_owned()),
        },
        "text_editor_code_execution_str_replace_result" => edited(&mut fields)?,
        "tool_search_tool_search_result" => found_tools(&mut fields)?,
        failed if failed.ends_with("_error") => {
            fields.text("error_code")?.map(|code| format!("The tool failed: {code}"))
        }
        other => match parts(other, &mut fields)? {
            Some(parts) => return Ok(parts),
            None => {
                count_unknown(&format!("{at}.type={other}"));
                None
            }
        },
    };
    Ok(text.into_iter().map(Part::Text).collect())
}

fn found_page(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let lines = [fields.text("title")?, fields.text("url")?, fields.text("page_age")?];
    Ok(Some(lines.into_iter().flatten().collect::<Vec<_>>().join("\n")))
}

fn fetched_page(fields: &mut Fields) -> Result<Vec<Part>, ApiError> {
    let mut parts: Vec<Part> = fields.text("url")?.map(Part::Text).into_iter().collect();
    let at = fields.at("content");
    if let Some(page) = fields.value("content") {
        for part in document(&mut Fields::tolerant(page, &at, &[RESULT])?)? {
            media::push(&mut parts, part, "\n");
        }
    }
    Ok(parts)
}

/// The output of code, as a terminal shows it.
fn ran(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let output = [fields.text("stdout")?, fields.text("stderr")?];
    let code = fields.integer("return_code")?.filter(|code| *code != 0);
    let code = code.map(|code| format!("The exit code is {code}."));
    let lines = output.into_iter().flatten().filter(|text| !text.is_empty()).chain(code);
    Ok(Some(lines.collect::<Vec<_>>().join("\n")))
}

fn edited(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let lines = fields.list("lines")?.unwrap_or_default();
    let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
    Ok(Some(lines.join("\n")))
}

fn found_tools(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let list = fields.list("tool_references")?.unwrap_or_default();
    let names = list.iter().filter_map(|tool| tool.get("tool_name")).filter_map(Value::as_str);
    Ok(Some(names.collect::<Vec<_>>().join("\n")))
}

/// Parts between two tags. Attributes that are absent are left out.
fn tagged(tag: &str, attributes: &[(&str, Option<String>)], inner: Vec<Part>) -> Vec<Part> {
    let mut open = format!("<{tag}");
    for (name, value) in attributes {
        if let Some(value) = value {
            open.push_str(&format!(" {name}={}", Value::from(value.as_str())));
        }
    }
    let mut parts = vec![Part::Text(format!("{open}>\n"))];
    for part in inner {
        media::push(&mut parts, part, "");
    }
    media::push(&mut parts, Part::Text(format!("\n</{tag}>")), "");
    parts
}
