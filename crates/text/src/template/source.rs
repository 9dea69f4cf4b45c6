//! The chat templates in a model directory.

use std::fmt;
use std::path::Path;

use crate::error::Error;
use crate::files;

/// Names of special tokens that templates use.
pub(super) const SPECIAL_TOKENS: &[&str] =
    &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The name of one of several templates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateName {
    /// The default.
    Default,
    /// Used when there are tools.
    ToolUse,
    /// Selected by name, as `rag`.
    Other(String),
}

impl From<&str> for TemplateName {
    fn from(name: &str) -> Self {
        match name {
            "default" => TemplateName::Default,
            "tool_use" => TemplateName::ToolUse,
            other => TemplateName::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TemplateName::Default => "default",
            TemplateName::ToolUse => "tool_use",
            TemplateName::Other(name) => name,
        })
    }
}

/// The templates of a directory: those of the first source that has any.
pub(super) fn read(directory: &Path) -> Result<Vec<(TemplateName, String)>, Error> {
    let mut found = Vec::new();
    if let Some(source) = files::read_text(&directory.join("chat_template.jinja"))? {
        found.push((TemplateName::Default, source));
    }
    let additional = directory.join("additional_chat_templates");
    for path in files::list(&additional, "jinja")? {
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if let Some(source) = files::read_text(&path)? {
            found.push((TemplateName::from(name), source));
        }
    }
    for file in ["chat_template.json", "tokenizer_config.json"] {
        if !found.is_empty() {
            break;
        }
        let path = directory.join(file);
        if let Some(config) = files::read_json(&path)? {
            found = from_config(&path, config.get("chat_template"))?;
        }
    }
    Ok(found)
}

/// `chat_template` is a text, or a list of objects with `name` and `template`.
fn from_config(path: &Path, value: Option<&serde_json::Value>) -> Result<Vec<(TemplateName, String)>, Error> {
    let unreadable = || Error::File {
        path: path.to_owned(),
        message:
            "'chat_template' must be a text or a list of {name, template}; correct it or pass --chat-template"
                .to_owned(),
    };
    match value {
        None | Some(serde_json::Value::Null) => Ok(Vec::new()),
        Some(serde_json::Value::String(source)) => Ok(vec![(TemplateName::Default, source.clone())]),
        Some(serde_json::Value::Array(items)) => items
            .iter()
            .map(|item| {
                let text = |key: &str| item.get(key).and_then(serde_json::Value::as_str);
                let (name, source) =
                    (text("name").ok_or_else(unreadable)?, text("template").ok_or_else(unreadable)?);
                Ok((TemplateName::from(name), source.to_owned()))
            })
            .collect(),
        Some(_) => Err(unreadable()),
    }
}
