//! `POST /api/chat`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::load::{delivery, generate_or_load};
use super::served;
use crate::api::{Api, Prepared, RequestContext};
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::response::ollama::{OllamaFramer, Shape};
use crate::response::openai::Logprobs;
use crate::wire::ollama::chat::ChatRequest;

/// Ollama's chats.
pub struct OllamaChat;

impl Api for OllamaChat {
    const NAME: &'static str = "ollama_chat";
    const ID_PREFIX: &'static str = "ollama-";
    const INPUT_FIELD: &'static str = "messages";
    type Framer = OllamaFramer;

    fn model(body: &Value, app: &App) -> Option<String> {
        served::model(body, app)
    }

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<OllamaFramer>, ApiError> {
        let ChatRequest { shared, conversation } = ChatRequest::read(body)?;
        let tools = &conversation.tools.list;
        let served = served::generating(&context.engine.models(), &shared.model, &shared.think, tools)?;
        let framer = OllamaFramer::new(shared.model.clone(), Shape::Chat)
            .with_reasoning(shared.think.shown())
            .with_logprobs(Logprobs::of(shared.logprobs));
        let delivery = delivery(shared.generation.streaming);
        let batch = lower::ollama::chat(shared, conversation, served, &context.caller);
        Ok(Prepared { batch, framer, delivery, server_loop: None })
    }
}

/// Answers a chat, or loads a model.
pub async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    generate_or_load::<OllamaChat>(app, request, Shape::Chat).await
}
