//! `POST /classify` and `POST /pooling`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use omnibus_engine::{Activation, Pooled, Task};
use serde::Serialize;

use super::{PoolingCall, answered, name_cut, tokens, wrong_task};
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::wire::pooling::classify::{Classification, ClassifyRequest, FIELDS, POOLING, PooledData};
use crate::wire::pooling::numbers::Numbers;
use crate::wire::pooling::{Envelope, PoolingUsage};

/// Labels of texts.
pub async fn classify(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answered("classify", classified(app, request).await)
}

/// What a model's head gives.
pub async fn pooling(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answered("pooling", pooled(app, request).await)
}

async fn classified(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = PoolingCall::open(app, request, ("classify", "classify-")).await?;
    let wire = ClassifyRequest::read(body, FIELDS)?;
    let pooler = call.pooler(wire.options.model.as_deref())?;
    let (labels, activation) = match pooler.task() {
        Task::Classify { labels, activation } => (labels, *activation),
        task => return Err(wrong_task(task, "labels no texts")),
    };
    let activation = if wire.activated { activation } else { Activation::Identity };
    let inputs = lower::pooling::inputs(wire.inputs);
    let pooled = call.pool(lower::pooling::request(&wire.options, inputs, "input", &call.caller)).await?;
    let one = |(index, text): (usize, &Pooled)| {
        let probs = activation.apply(&text.numbers);
        let best = probs.iter().enumerate().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let label = best.and_then(|(best, _)| labels.get(best)).cloned().unwrap_or_default();
        Classification { index, label, num_classes: probs.len(), probs }
    };
    let data = pooled.iter().enumerate().map(one).collect();
    Ok(enveloped(&call, wire.options.model.as_deref(), data, &pooled))
}

async fn pooled(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = PoolingCall::open(app, request, ("pooling", "pool-")).await?;
    let wire = ClassifyRequest::read(body, POOLING)?;
    let pooler = call.pooler(wire.options.model.as_deref())?;
    let (does, labels, activation) = match pooler.task() {
        Task::Embed => ("embed", 0, Activation::Identity),
        Task::Classify { activation, .. } | Task::Score { activation } => ("classify", 0, *activation),
        Task::ClassifyTokens { labels } => ("token_classify", labels.len(), Activation::Softmax),
        task @ Task::ScoreTokens { .. } => return Err(wrong_task(task, "pools no texts")),
    };
    if let Some(task) = wire.task.as_deref().filter(|task| *task != does) {
        let message = format!("`task` must be `{does}` for this model, not `{task}`");
        return Err(ApiError::invalid("task", message));
    }
    let activation = if wire.activated { activation } else { Activation::Identity };
    let inputs = lower::pooling::inputs(wire.inputs);
    let pooled = call.pool(lower::pooling::request(&wire.options, inputs, "input", &call.caller)).await?;
    let numbers = |text: &Pooled| match labels {
        0 => Numbers::of(activation.apply(&text.numbers), wire.encoding),
        width => {
            let rows: Vec<f32> = text.numbers.chunks(width).flat_map(|row| activation.apply(row)).collect();
            Numbers::rows(&rows, width, wire.encoding)
        }
    };
    let data = pooled.iter().enumerate();
    let data = data.map(|(index, text)| PooledData { index, object: "pooling", data: numbers(text) });
    Ok(enveloped(&call, wire.options.model.as_deref(), data.collect(), &pooled))
}

fn enveloped<T: Serialize>(
    call: &PoolingCall,
    model: Option<&str>,
    data: Vec<T>,
    pooled: &[Pooled],
) -> Response {
    let envelope = Envelope {
        id: call.caller.response_id.clone(),
        object: "list",
        created: call.created(),
        model: call.name(model),
        data,
        usage: PoolingUsage::new(tokens(pooled)),
    };
    let mut response = Json(envelope).into_response();
    name_cut(&mut response, pooled);
    response
}
