//! The result of a call, as text for a model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::plain_text::{first_bytes, plain};

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// What the model reads.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// The result as the server sent it, for clients of the tool itself.
    pub content: Vec<Value>,
    /// The structured result, where the tool has one.
    pub structured: Option<Value>,
}

impl Outcome {
    /// A failure in words.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, content: Vec::new(), structured: None }
    }

    /// What a server sent, of which the model gets so many bytes at most.
    pub fn of(result: CallToolResult, most: usize) -> Self {
        let mut parts: Vec<String> = result.content.iter().map(part).collect();
        if parts.iter().all(String::is_empty)
            && let Some(structured) = &result.structured_content
        {
            parts = vec![structured.to_string()];
        }
        let text = plain(&parts.join("\n"));
        let content = result.content.iter().filter_map(|block| serde_json::to_value(block).ok());
        Self {
            content: content.collect(),
            is_error: result.is_error.unwrap_or(false),
            text: cut(text, most),
            structured: result.structured_content,
        }
    }

    /// This result with so many bytes of text at most.
    pub fn within(self, most: usize) -> Self {
        Self { text: cut(self.text, most), ..self }
    }
}

/// The text, or its first bytes and a note that says how much is missing.
fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    format!(
        "{}\n[cut: the result has {} bytes, of which {most} are shown]",
        first_bytes(&text, most),
        text.len()
    )
}

fn part(block: &ContentBlock) -> String {
    // Base64 has four characters for three bytes.
    let bytes = |data: &str| data.len() / 4 * 3;
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            format!("[image, {}, {} bytes: not shown]", image.mime_type, bytes(&image.data))
        }
        ContentBlock::Audio(audio) => {
            format!("[audio, {}, {} bytes: not shown]", audio.mime_type, bytes(&audio.data))
        }
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.name, link.uri),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                format!("[resource {uri}, {} bytes: not shown]", bytes(blob))
            }
            _ => "[resource of an unknown kind: not shown]".to_owned(),
        },
        _ => "[content of an unknown kind: not shown]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: Value, most: usize) -> Outcome {
        Outcome::of(serde_json::from_value(json).unwrap(), most)
    }

    #[test]
    fn texts_are_joined_and_media_are_named() {
        let outcome = of(
            serde_json::json!({"content": [
                {"type": "text", "text": "one\u{200b}"},
                {"type": "image", "data": "AAAAAAAA", "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            ], "isError": true}),
            1000,
        );
        assert_eq!(outcome.text, "one\n[image, image/png, 6 bytes: not shown]\ntwo");
        assert!(outcome.is_error && outcome.content.len() == 3);
    }

    #[test]
    fn a_structured_result_without_text_is_shown() {
        let json = serde_json::json!({"content": [], "structuredContent": {"sum": 3}});
        assert_eq!(of(json, 1000).text, r#"{"sum":3}"#);
    }

    #[test]
    fn a_long_result_is_cut_and_says_so() {
        let json = serde_json::json!({"content": [{"type": "text", "text": "é".repeat(100)}]});
        assert_eq!(of(json, 5).text, "éé\n[cut: the result has 200 bytes, of which 5 are shown]");
    }
}
