//! `POST /classify` and `POST /pooling`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use omnibus_engine::{
    Activation, Pooled, Pooler, PoolingOutput, PoolingPrompt, PoolingRequest, Task, VectorLength,
};
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
    let made = chosen(&pooler, wire.task.as_deref())?;
    let inputs = lower::pooling::inputs(wire.inputs);
    let pooling = PoolingRequest {
        output: made.output,
        length: if wire.activated { VectorLength::AsTheModel } else { VectorLength::AsComputed },
        prompt: wire.prompt.map_or(PoolingPrompt::Default, PoolingPrompt::Named),
        ..lower::pooling::request(&wire.options, inputs, "input", &call.caller)
    };
    let pooled = call.pool(pooling).await?;
    let activation = if wire.activated { made.activation } else { Activation::Identity };
    let numbers = |text: &Pooled| {
        let width = match made.rows {
            RowWidth::Text => return Numbers::of(activation.apply(&text.numbers), wire.encoding),
            RowWidth::Of(width) => width,
            RowWidth::Vectors => text.numbers.len() / text.of_tokens.len().max(1),
        };
        let rows: Vec<f32> =
            text.numbers.chunks(width.max(1)).flat_map(|row| activation.apply(row)).collect();
        Numbers::rows(&rows, width, wire.encoding)
    };
    let data = pooled.iter().enumerate();
    let data = data.map(|(index, text)| PooledData { index, object: "pooling", data: numbers(text) });
    Ok(enveloped(&call, wire.options.model.as_deref(), data.collect(), &pooled))
}

/// What `/pooling` makes of each text.
struct Chosen {
    output: PoolingOutput,
    rows: RowWidth,
    activation: Activation,
}

/// Whether numbers are of a text, or of each of its tokens.
enum RowWidth {
    Text,
    Of(usize),
    /// As many as a vector has.
    Vectors,
}

/// What a model makes of texts by vLLM's name of a task; what it is for, if there is none.
fn chosen(pooler: &Pooler, task: Option<&str>) -> Result<Chosen, ApiError> {
    let made = |output, rows, activation| Chosen { output, rows, activation };
    let vector = || ("embed", made(PoolingOutput::Task, RowWidth::Text, Activation::Identity));
    let of_tokens =
        || ("token_embed", made(PoolingOutput::TokenVectors, RowWidth::Vectors, Activation::Identity));
    let weights =
        || ("token_classify", made(PoolingOutput::TokenWeights, RowWidth::Text, Activation::Identity));
    let all = match pooler.task() {
        Task::Embed if pooler.gives(PoolingOutput::TokenWeights) => vec![vector(), of_tokens(), weights()],
        Task::Embed => vec![vector(), of_tokens()],
        Task::EmbedSparse { .. } => vec![vector()],
        Task::EmbedTokens => vec![of_tokens()],
        Task::Classify { activation, .. } | Task::Score { activation } => {
            vec![("classify", made(PoolingOutput::Task, RowWidth::Text, *activation))]
        }
        Task::ClassifyTokens { labels } => {
            let rows = RowWidth::Of(labels.len());
            vec![("token_classify", made(PoolingOutput::Task, rows, Activation::Softmax))]
        }
        task @ Task::ScoreTokens { .. } => return Err(wrong_task(task, "pools no texts")),
    };
    let names: Vec<String> = all.iter().map(|(name, _)| format!("`{name}`")).collect();
    let found = all.into_iter().find(|(name, _)| task.is_none_or(|task| task == *name));
    found.map(|(_, made)| made).ok_or_else(|| {
        let message = format!(
            "`task` must be {} for this model, not `{}`",
            names.join(" or "),
            task.unwrap_or_default()
        );
        ApiError::invalid("task", message)
    })
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
