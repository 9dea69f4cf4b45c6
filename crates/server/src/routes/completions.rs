//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::generate::{self, RequestContext, Submitted};
use crate::answer::chat::Logprobs;
use crate::answer::completions::{Shown, TextAnswer};
use crate::answer::reply::reply;
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::observe::Api;
use crate::wire::completions::{CompletionRequest, Echo, Prompt};
use crate::wire::generation::{Delivery, StreamUsage};

/// Completes prompts.
pub async fn create(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (answer, submitted, delivery) = generate::submitted(&app, request, Api::Completions, submit).await?;
    reply(answer, submitted.events, submitted.choices, delivery).await
}

fn submit(
    app: &App,
    context: &RequestContext,
    body: Value,
) -> Result<(TextAnswer, Submitted, Delivery), ApiError> {
    let wire = CompletionRequest::read(body)?;
    let delivery = wire.generation.delivery;
    let usage = match delivery {
        Delivery::Stream(usage) => usage,
        Delivery::Whole => StreamUsage::Omit,
    };
    let logprobs = if wire.logprobs.is_some() { Logprobs::Show } else { Logprobs::Hide };
    let shown = Shown { usage, logprobs, echoes: echoes(app, &wire)? };
    let batch = lower::completions::lower(wire, &context.caller);
    let submitted = generate::submit(app, context, batch).map_err(|error| match error.outcome() {
        "context_length_exceeded" => error.or_param("prompt"),
        _ => error,
    })?;
    Ok((TextAnswer::new(submitted.header.clone(), submitted.choices, shown), submitted, delivery))
}

/// The text of each prompt, when `echo` is set.
fn echoes(app: &App, wire: &CompletionRequest) -> Result<Option<Vec<String>>, ApiError> {
    let echo = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => Ok(text.clone()),
        Prompt::Tokens(tokens) => {
            app.engine.detokenize(wire.generation.model.as_deref(), tokens).map_err(ApiError::from)
        }
    };
    match wire.echo {
        Echo::Omit => Ok(None),
        Echo::Include => wire.prompts.iter().map(echo).collect::<Result<_, _>>().map(Some),
    }
}
