//! Files in content parts: images, videos, sounds and texts. A note stands for others.
//!
//! Invariant: bytes come from the body itself; a URL is only passed on.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::fields::{Field, Fields, harmless, honoured};
use super::media::{self, MediaPart, Part};
use super::pdf;
use crate::error::ApiError;

/// Fields of the `file` of a chat's part.
pub const FILE: &[Field] = &[
    honoured(
        "file_data",
        "of a text, a PDF, an image, a video or a sound: a `data:` URL, or base64; a PDF's text is read; a note stands for other files",
    ),
    honoured("filename", "its ending says what a file is whose `data:` URL does not"),
    harmless("file_id", "this server keeps no files; a note stands for it"),
];

/// Endings of the names of texts.
const TEXTS: &[&str] = &[
    "txt", "md", "markdown", "rst", "csv", "tsv", "json", "jsonl", "yaml", "yml", "toml", "xml", "html",
    "htm", "css", "js", "mjs", "ts", "tsx", "jsx", "py", "rs", "go", "java", "c", "h", "cc", "cpp", "hpp",
    "cs", "rb", "php", "sh", "sql", "ini", "cfg", "conf", "log", "tex", "diff", "patch",
];
/// The type of a PDF.
pub const PDF_TYPE: &str = "application/pdf";
/// Types of texts that do not begin with `text/`.
const TEXT_TYPES: &[&str] = &[
    "application/json",
    "application/xml",
    "application/yaml",
    "application/toml",
    "application/javascript",
];

/// The part of a file, whose fields are these.
pub fn part(fields: &mut Fields) -> Result<Part, ApiError> {
    let file = File {
        data: fields.text("file_data")?,
        url: fields.text("file_url")?,
        name: fields.text("filename")?,
        data_at: fields.at("file_data"),
        url_at: fields.at("file_url"),
    };
    if let Some(media) = file.media()? {
        return Ok(Part::Media(media));
    }
    Ok(Part::Text(file.text()?.unwrap_or_else(|| file.note())))
}

struct File {
    data: Option<String>,
    url: Option<String>,
    name: Option<String>,
    data_at: String,
    url_at: String,
}

impl File {
    fn media(&self) -> Result<Option<MediaPart>, ApiError> {
        let name = self.name.as_deref();
        match (&self.data, &self.url) {
            (Some(data), _) => media::of_file_data(data, name, &self.data_at),
            (None, Some(url)) => media::of_file_url(url, name, &self.url_at),
            (None, None) => Ok(None),
        }
    }

    /// The text, under the file's name. `None` if it is no text. Fails if it should be one and is not.
    fn text(&self) -> Result<Option<String>, ApiError> {
        let Some(data) = &self.data else { return Ok(None) };
        let (kind, base64) = match data.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
            Some((head, base64)) => (head.split(';').next().unwrap_or_default(), base64),
            None => ("", data.as_str()),
        };
        let is_pdf = kind == PDF_TYPE || self.ends_as("pdf");
        if !is_pdf && !self.is_text(kind) {
            return Ok(None);
        }
        let broken =
            |what: &str| ApiError::invalid(&self.data_at, format!("`{}` must be {what}", self.data_at));
        let bytes = STANDARD.decode(base64.trim()).map_err(|_| broken("base64"))?;
        let text = match is_pdf {
            true => pdf::of_field(&bytes, &self.data_at)?,
            false => String::from_utf8(bytes).map_err(|_| broken("a text in UTF-8"))?,
        };
        Ok(Some(match &self.name {
            Some(name) => format!("{name}:\n{text}"),
            None => text,
        }))
    }

    fn is_text(&self, kind: &str) -> bool {
        kind.starts_with("text/")
            || TEXT_TYPES.contains(&kind)
            || TEXTS.iter().any(|ending| self.ends_as(ending))
    }

    fn ends_as(&self, known: &str) -> bool {
        let ending = self.name.as_deref().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
        ending.is_some_and(|ending| ending.eq_ignore_ascii_case(known))
    }

    fn note(&self) -> String {
        match &self.name {
            Some(name) => format!("[file {name}: only texts, PDFs, images, videos and sounds are read]"),
            None => "[file: only texts, PDFs, images, videos and sounds are read]".to_owned(),
        }
    }
}
