//! `POST /v1/rerank`, `/v2/rerank`: Cohere's and Jina's shapes.

use serde::Serialize;
use serde_json::Value;

use super::{PoolingOptions, PoolingUsage, text, texts};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured, refused};

/// Its own fields.
pub const FIELDS: &[Field] = &[
    honoured("query", "a text"),
    honoured("documents", "a list of texts, or of objects with a `text`"),
    honoured("top_n", "the best so many; all when absent or 0"),
    honoured("return_documents", "false leaves out the documents' texts"),
    honoured("max_tokens_per_doc", "cuts longer documents, with the query, to so many tokens"),
    honoured("instruction", "of models whose template has one"),
    honoured("use_activation", "false gives the head's number as it is"),
    harmless("rank_fields", "documents have one text"),
    refused("max_chunks_per_doc", "a document is read once; `max_tokens_per_doc` cuts it"),
    refused("max_tokens_per_query", "a query is read whole"),
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct RerankRequest {
    #[allow(missing_docs)]
    pub options: PoolingOptions,
    #[allow(missing_docs)]
    pub query: String,
    #[allow(missing_docs)]
    pub documents: Vec<String>,
    /// How many are returned.
    pub top_n: Option<usize>,
    /// Whether texts are returned.
    pub returned: ReturnedDocuments,
    /// Most tokens of a document with its query.
    pub max_tokens: Option<usize>,
    /// For models whose template has one.
    pub instruction: Option<String>,
    /// Whether scores are those of the model's files, or the head's numbers.
    pub activated: bool,
}

/// Whether a response has the documents' texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReturnedDocuments {
    Texts,
    Omit,
}

impl RerankRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS, super::COMMON])?;
        let options = PoolingOptions::read(&mut fields)?;
        let query = fields.value("query");
        let query = text("query", fields.required("query", query)?)?;
        let documents = fields.value("documents");
        let documents = match fields.required("documents", documents)? {
            Value::Array(list) if list.is_empty() => Vec::new(),
            value => texts("documents", value)?,
        };
        let top_n = fields.count("top_n", (0, usize::MAX))?.filter(|count| *count > 0);
        let returned = match fields.flag("return_documents")?.unwrap_or(true) {
            true => ReturnedDocuments::Texts,
            false => ReturnedDocuments::Omit,
        };
        let max_tokens = fields.count("max_tokens_per_doc", (1, usize::MAX))?;
        let instruction = fields.text("instruction")?;
        let activated = fields.flag("use_activation")?.unwrap_or(true);
        fields.finish();
        Ok(Self { options, query, documents, top_n, returned, max_tokens, instruction, activated })
    }
}

/// A response.
#[derive(Debug, Clone, Serialize)]
pub struct Reranked {
    #[allow(missing_docs)]
    pub id: String,
    /// As the client named it.
    pub model: String,
    #[allow(missing_docs)]
    pub usage: PoolingUsage,
    /// The best first.
    pub results: Vec<RankedDocument>,
    /// Cohere's.
    pub meta: Meta,
}

/// A document's score.
#[derive(Debug, Clone, Serialize)]
pub struct RankedDocument {
    /// Which document.
    pub index: usize,
    #[allow(missing_docs)]
    pub relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[allow(missing_docs)]
    pub document: Option<DocumentText>,
}

/// A document.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentText {
    #[allow(missing_docs)]
    pub text: String,
}

/// What Cohere's clients read of a response.
#[derive(Debug, Clone, Serialize)]
pub struct Meta {
    /// The version that a client speaks.
    pub api_version: ApiVersion,
    #[allow(missing_docs)]
    pub billed_units: BilledUnits,
}

/// Cohere's version.
#[derive(Debug, Clone, Serialize)]
pub struct ApiVersion {
    /// `2`.
    pub version: &'static str,
}

/// What was read.
#[derive(Debug, Clone, Serialize)]
pub struct BilledUnits {
    #[allow(missing_docs)]
    pub input_tokens: usize,
}

impl Meta {
    /// Of so many tokens.
    pub fn new(input_tokens: usize) -> Self {
        Self { api_version: ApiVersion { version: "2" }, billed_units: BilledUnits { input_tokens } }
    }
}
