//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::generate::{self, RequestContext, Submitted};
use crate::answer::chat::{ChatAnswer, Logprobs};
use crate::answer::reply::reply;
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::observe::Api;
use crate::wire::chat::ChatRequest;
use crate::wire::generation::{Delivery, StreamUsage};

/// Completes a conversation.
pub async fn create(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (answer, submitted, delivery) = generate::submitted(&app, request, Api::Chat, submit).await?;
    reply(answer, submitted.events, submitted.choices, delivery).await
}

fn submit(
    app: &App,
    context: &RequestContext,
    body: Value,
) -> Result<(ChatAnswer, Submitted, Delivery), ApiError> {
    let wire = ChatRequest::read(body)?;
    let delivery = wire.generation.delivery;
    let logprobs = if wire.logprobs.is_some() { Logprobs::Show } else { Logprobs::Hide };
    let batch = lower::chat::lower(wire, &context.caller);
    let submitted = generate::submit(app, context, batch).map_err(|error| match error.outcome() {
        "context_length_exceeded" => error.or_param("messages"),
        _ => error,
    })?;
    let usage = match delivery {
        Delivery::Stream(usage) => usage,
        Delivery::Whole => StreamUsage::Omit,
    };
    Ok((ChatAnswer { header: submitted.header.clone(), usage, logprobs }, submitted, delivery))
}
