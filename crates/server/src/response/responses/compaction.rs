//! The response of a compaction: the user's messages, and a summary that only this server reads.

use omnibus_engine::Usage;
use serde_json::{Value, json};

use super::usage_of;
use crate::error::ApiError;
use crate::lower::opaque;
use crate::response::{Completion, CompletionPart, Event, Framer, Frames, JsonBody, ResponseHeader};
use crate::wire::energy::ShownEnergy;
use crate::wire::responses::compaction::CompactedResponse;
use crate::wire::responses::item_ids;

/// Frames one compaction, which is never streamed.
pub struct CompactionFramer {
    header: ResponseHeader,
    /// The user's messages.
    messages: Vec<Value>,
}

impl CompactionFramer {
    /// The framer of a compaction of these messages of the user and all between them.
    pub fn new(header: ResponseHeader, messages: Vec<Value>) -> Self {
        Self { header, messages }
    }
}

impl Framer for CompactionFramer {
    type Body = Result<JsonBody, ApiError>;

    fn start(&mut self, _frames: &mut Frames) {}

    fn event(&mut self, _choice: usize, _event: Event, _frames: &mut Frames) {}

    fn finish(&mut self, _usage: Usage, _frames: &mut Frames) {}

    fn fail(&mut self, _error: &ApiError, _frames: &mut Frames) {}

    fn full(self, completions: Vec<Completion>, usage: Usage) -> Self::Body {
        let parts = completions.into_iter().next().unwrap_or_default().parts;
        let text = |part| match part {
            CompletionPart::Text(text) => Some(text),
            CompletionPart::Reasoning(_) | CompletionPart::ToolCall(_) | CompletionPart::Tool(_) => None,
        };
        let summary: String = parts.into_iter().filter_map(text).collect();
        if summary.trim().is_empty() {
            return Err(ApiError::internal("the model wrote no summary; the conversation is not compacted"));
        }
        let Self { header, messages: mut output } = self;
        output.push(json!({
            "type": "compaction",
            "id": item_ids::of("cmp", &header.id, output.len()),
            "encrypted_content": opaque::encode(summary.trim()),
        }));
        Ok(JsonBody::of(&CompactedResponse {
            id: header.id,
            object: "response.compaction",
            created_at: header.created,
            output,
            usage: usage_of(usage, ShownEnergy::Omit),
        }))
    }
}
