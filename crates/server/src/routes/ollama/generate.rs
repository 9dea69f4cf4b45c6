//! `POST /api/generate`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use omnibus_engine::{AddSpecial, Input};
use serde_json::Value;

use super::load::{delivery, generate_or_load};
use super::served;
use crate::api::{Api, Prepared, RequestContext};
use crate::app::App;
use crate::error::ApiError;
use crate::lower::{self, GenerationBatch};
use crate::response::ollama::{OllamaFramer, Shape};
use crate::response::openai::Logprobs;
use crate::wire::generation::TokenIds;
use crate::wire::ollama::generate::{GenerateRequest, Prompt};

/// Ollama's completions.
pub struct OllamaGenerate;

impl Api for OllamaGenerate {
    const NAME: &'static str = "ollama_generate";
    const ID_PREFIX: &'static str = "ollama-";
    const INPUT_FIELD: &'static str = "prompt";
    type Framer = OllamaFramer;

    fn model(body: &Value, app: &App) -> Option<String> {
        served::model(body, app)
    }

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<OllamaFramer>, ApiError> {
        let GenerateRequest { mut shared, mut prompt } = GenerateRequest::read(body)?;
        let served = served::generating(&context.engine.models(), &shared.model, &shared.think, &[])?;
        let framer = OllamaFramer::new(shared.model.clone(), Shape::Generate)
            .with_reasoning(shared.think.shown())
            .with_logprobs(Logprobs::of(shared.logprobs));
        let delivery = delivery(shared.generation.streaming);
        let earlier = match &mut prompt {
            Prompt::Chat { earlier, .. } => {
                shared.generation.tokens.ids = TokenIds::Return;
                Some(std::mem::take(earlier))
            }
            Prompt::Raw(_) | Prompt::Infill { .. } => None,
        };
        let mut batch = lower::ollama::generate(shared, prompt, served, &context.caller);
        let tokens = earlier.map(|earlier| tokens(&mut batch, context, earlier)).transpose()?.flatten();
        Ok(Prepared { batch, framer: framer.with_context(tokens), delivery, server_loop: None })
    }
}

/// The tokens of a conversation's prompt behind those of an earlier one, which the prompt continues. None with images.
fn tokens(
    batch: &mut GenerationBatch,
    context: &RequestContext<'_>,
    earlier: Vec<u32>,
) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(prompt) = batch.prompts.first_mut() else { return Ok(None) };
    if matches!(&prompt.input, Input::Chat(chat) if !chat.media.is_empty()) {
        return Ok(None);
    }
    let own = context.engine.tokenize(prompt.model.as_deref(), &prompt.input, AddSpecial::Yes)?;
    if earlier.is_empty() {
        return Ok(Some(own));
    }
    let all = [earlier, own].concat();
    prompt.input = Input::Tokens(all.clone());
    Ok(Some(all))
}

/// Completes a prompt, or loads a model.
pub async fn generate(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    generate_or_load::<OllamaGenerate>(app, request, Shape::Generate).await
}
