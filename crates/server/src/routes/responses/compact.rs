//! `POST /v1/responses/compact`: a summary in the place of a conversation, written by the model.

use omnibus_engine::AddSpecial;
use serde_json::Value;

use super::mcp_history::History;
use super::{conversation, lowered};
use crate::api::{Api, Prepared, RequestContext};
use crate::app::App;
use crate::error::ApiError;
use crate::lower::GenerationBatch;
use crate::response::Delivery;
use crate::response::responses::CompactionFramer;
use crate::wire::responses::compaction;
use crate::wire::responses::items::{in_full, with_id};

/// Most tokens of a summary.
const TOKENS_MAX: usize = 2048;

/// Compaction of a conversation of the Responses API.
pub struct CompactionApi;

impl Api for CompactionApi {
    const NAME: &'static str = "responses";
    const ID_PREFIX: &'static str = "resp_";
    const INPUT_FIELD: &'static str = "input";
    type Framer = CompactionFramer;

    fn model(body: &Value, app: &App) -> Option<String> {
        app.served(body.get("model").and_then(Value::as_str)).map(str::to_owned)
    }

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<CompactionFramer>, ApiError> {
        let mut wire = compaction::read(body)?;
        let mut items = conversation::of(&mut wire, context)?.items;
        if items.is_empty() {
            return Err(ApiError::invalid("input", "`input` must have at least one item"));
        }
        let messages: Vec<Value> = items.iter().filter(|item| is_of_user(item)).cloned().collect();
        items.push(compaction::request());
        let (mut batch, _) = lowered(&wire, &History::of(&items, context)?.items, context)?;
        limit(&mut batch, context)?;
        let header = context.header(&batch);
        let named = |(index, item)| in_full(with_id(item, &header.id, index));
        let messages = messages.into_iter().enumerate().map(named).collect();
        let framer = CompactionFramer::new(header.clone(), messages);
        Ok(Prepared { batch, framer, delivery: Delivery::Full, server_loop: None })
    }
}

fn is_of_user(item: &Value) -> bool {
    let is = |name: &str, value: &str| item.get(name).and_then(Value::as_str) == Some(value);
    is("role", "user") && (is("type", "message") || item.get("type").is_none())
}

/// Limits the summary, and to what fits. A prompt with media is left to the engine, which counts them later.
fn limit(batch: &mut GenerationBatch, context: &RequestContext<'_>) -> Result<(), ApiError> {
    for prompt in &mut batch.prompts {
        let is_text = !matches!(&prompt.input, omnibus_engine::Input::Chat(chat) if !chat.media.is_empty());
        let model = prompt.model.as_deref();
        let Some(context_tokens) = context.max_model_len(model).filter(|_| is_text) else { continue };
        let tokens = context.engine.tokenize(model, &prompt.input, AddSpecial::Yes)?.len();
        prompt.max_new_tokens = Some(context_tokens.saturating_sub(tokens).clamp(1, TOKENS_MAX));
    }
    Ok(())
}
