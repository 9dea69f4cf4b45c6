//! Models in Anthropic's shape.

use serde::Serialize;

/// A page of models.
#[derive(Debug, Clone, Serialize)]
pub struct ModelPage {
    /// The models.
    pub data: Vec<Model>,
    /// Whether there are more.
    pub has_more: bool,
    /// The id of the first one.
    pub first_id: Option<String>,
    /// The id of the last one.
    pub last_id: Option<String>,
}

/// One model.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    /// `model`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The served name.
    pub id: String,
    /// The served name.
    pub display_name: String,
    /// As in RFC 3339.
    pub created_at: String,
    /// `active`
    pub lifecycle: &'static str,
    /// Most tokens of the prompt, once the model is loaded.
    pub max_input_tokens: Option<usize>,
    /// Most tokens of an answer, once the model is loaded.
    pub max_tokens: Option<usize>,
}
