//! `POST /v2/embed`: Cohere's embeddings.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::rerank::Meta;
use super::texts;
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured, refused, type_error};

/// Its fields.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("texts", "a list of texts; or `inputs`"),
    honoured("inputs", "a list of objects with parts of text; or `texts`"),
    honoured("input_type", "`search_query`, `search_document` or a prompt of the model"),
    honoured("output_dimension", "the first numbers of each vector, normalized again"),
    honoured("embedding_types", "`float`, `binary`, `ubinary`, `base64`; `float` when absent"),
    honoured("truncate", "`NONE`, `START` or `END`; `END` when absent"),
    honoured("max_tokens", "cuts longer texts to so many tokens"),
    honoured("priority", "higher runs first"),
    refused("images", "texts only"),
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct CohereEmbedRequest {
    #[allow(missing_docs)]
    pub model: Option<String>,
    #[allow(missing_docs)]
    pub texts: Vec<String>,
    /// `input_type`.
    pub prompt: Option<String>,
    /// `output_dimension`.
    pub dimensions: Option<usize>,
    /// `embedding_types`, each once.
    pub formats: Vec<Format>,
    /// Which end is left out; `None` refuses long texts.
    pub truncate: Option<super::Side>,
    /// Most tokens of a text.
    pub max_tokens: Option<usize>,
    #[allow(missing_docs)]
    pub priority: i32,
}

/// How a vector is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Format {
    Float,
    /// One bit for each number that is above 0, the first the highest of a byte, which is signed: 128 less.
    Binary,
    /// One bit for each number that is above 0, in bytes without a sign.
    Ubinary,
    Base64,
}

const FORMATS: [(&str, Format); 4] = [
    ("float", Format::Float),
    ("binary", Format::Binary),
    ("ubinary", Format::Ubinary),
    ("base64", Format::Base64),
];

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, format)| *format == self).map_or("float", |(name, _)| name)
    }
}

impl CohereEmbedRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS])?;
        let texts = match (fields.value("texts"), fields.value("inputs")) {
            (Some(value), None) => texts("texts", value)?,
            (None, Some(value)) => texts("inputs", value)?,
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid("inputs", "`inputs` does not go with `texts`"));
            }
            (None, None) => return Err(ApiError::invalid("texts", "`texts` is missing")),
        };
        let formats = match fields.list("embedding_types")? {
            None => vec![Format::Float],
            Some(list) => formats(&list)?,
        };
        let truncate = match fields.text("truncate")?.as_deref() {
            None | Some("END") => Some(super::Side::Right),
            Some("START") => Some(super::Side::Left),
            Some("NONE") => None,
            Some(other) => {
                let message = format!("`truncate` must be `NONE`, `START` or `END`, not `{other}`");
                return Err(ApiError::invalid("truncate", message));
            }
        };
        let priority = fields.integer("priority")?.unwrap_or(0);
        Ok(Self {
            model: fields.text("model")?,
            texts,
            prompt: fields.text("input_type")?,
            dimensions: fields.count("output_dimension", (1, 1 << 20))?,
            formats,
            truncate,
            max_tokens: fields.count("max_tokens", (1, usize::MAX))?,
            priority: i32::try_from(priority)
                .map_err(|_| ApiError::invalid("priority", "`priority` must be an integer of 32 bits"))?,
        })
    }
}

fn formats(list: &[Value]) -> Result<Vec<Format>, ApiError> {
    let mut formats = Vec::new();
    for (number, value) in list.iter().enumerate() {
        let at = format!("embedding_types[{number}]");
        let Some(name) = value.as_str() else { return Err(type_error(&at, "a string", value)) };
        let format = FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| *format);
        formats.push(format.ok_or_else(|| {
            ApiError::unsupported(
                &at,
                format!("`{at}` must be float, binary, ubinary or base64, not `{name}`"),
            )
        })?);
    }
    formats.sort_unstable();
    formats.dedup();
    Ok(formats)
}

/// A response.
#[derive(Debug, Clone, Serialize)]
pub struct CohereEmbeddings {
    #[allow(missing_docs)]
    pub id: String,
    /// By format, one value for each text.
    pub embeddings: BTreeMap<&'static str, Vec<CohereVector>>,
    /// The texts, as sent.
    pub texts: Vec<String>,
    #[allow(missing_docs)]
    pub meta: Meta,
    /// `embeddings_by_type`.
    pub response_type: &'static str,
}

/// A vector in one format.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum CohereVector {
    Numbers(super::numbers::Numbers),
    Bytes(Vec<i16>),
}

impl CohereVector {
    /// A vector in this format. Bits that fill the last byte are zeros.
    pub fn of(vector: &[f32], format: Format) -> Self {
        use super::numbers::{Encoding, Numbers};
        let bytes = |offset: i16| {
            let byte = |bits: &[f32]| {
                bits.iter()
                    .enumerate()
                    .fold(0i16, |byte, (at, value)| byte | i16::from(*value > 0.0) << (7 - at))
            };
            Self::Bytes(vector.chunks(8).map(|bits| byte(bits) - offset).collect())
        };
        match format {
            Format::Float => Self::Numbers(Numbers::of(vector.to_vec(), Encoding::Floats)),
            Format::Base64 => Self::Numbers(Numbers::of(vector.to_vec(), Encoding::Base64)),
            Format::Binary => bytes(128),
            Format::Ubinary => bytes(0),
        }
    }
}

#[test]
fn bits_are_packed_from_the_highest() {
    let vector = [0.5, -1.0, 0.0, 2.0, -0.1, 0.1, 0.1, 0.1];
    let bytes = |format| serde_json::to_string(&CohereVector::of(&vector, format)).ok();
    assert_eq!(bytes(Format::Ubinary).as_deref(), Some("[151]"));
    assert_eq!(bytes(Format::Binary).as_deref(), Some("[23]"));
}
