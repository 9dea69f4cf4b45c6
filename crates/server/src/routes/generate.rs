//! The steps that all generation routes share: read the body, lower it, submit the requests.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use omnibus_engine::{AddSpecial, Input, Request};
use uuid::Uuid;

use crate::active::Owner;
use crate::answer::{Choices, Merged, ResponseHeader, merge};
use crate::app::App;
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower::{Caller, GenerationBatch, expand};
use crate::observe::{Api, ObservedEvents};
use crate::request_id::RequestId;

/// The context of a generation request.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The API.
    pub api: Api,
    /// The HTTP request's id.
    pub request_id: RequestId,
    /// The tenant, and the response's id.
    pub caller: Caller,
}

impl RequestContext {
    /// Generates a new response id: clients may reuse an HTTP request id.
    pub fn new(api: Api, request_id: RequestId, tenant: Tenant) -> Self {
        let prefix = match api {
            Api::Chat => "chatcmpl",
            Api::Completions => "cmpl",
        };
        let response_id = format!("{prefix}-{}", Uuid::new_v4().simple());
        Self { api, request_id, caller: Caller { response_id, tenant: tenant.0 } }
    }
}

/// Requests that the engine has accepted.
pub struct Submitted {
    /// The fields that all chunks repeat.
    pub header: ResponseHeader,
    /// The number of choices.
    pub choices: Choices,
    /// The events of all choices.
    pub events: Merged,
}

/// Submits all requests of a batch, or none: when one is refused, those before it are dropped.
pub fn submit(
    app: &App,
    context: &RequestContext,
    mut batch: GenerationBatch,
) -> Result<Submitted, ApiError> {
    let choices = Choices { count: batch.prompts.len() * batch.n, per_prompt: batch.n };
    let header = header(app, context, &batch);
    if batch.n > 1 {
        tokenize_once(app, &mut batch)?;
    }
    let requests = expand::expand_n(batch).into_iter().enumerate();
    let events = requests.map(|(index, request)| submit_one(app, context, index, request));
    Ok(Submitted { header, choices, events: merge(events.collect::<Result<_, _>>()?) })
}

fn submit_one(
    app: &App,
    context: &RequestContext,
    index: usize,
    request: Request,
) -> Result<crate::engine::Events, ApiError> {
    let owner = Owner {
        response_id: context.caller.response_id.clone(),
        request_id: context.request_id.0.clone(),
        index,
        tenant: context.caller.tenant.clone(),
    };
    let guard = app.active.register(request.id.clone(), owner);
    let events = app.engine.submit(request)?;
    Ok(ObservedEvents::new(events, context.api, guard).boxed())
}

/// Tokenizes each prompt once for all of its completions.
fn tokenize_once(app: &App, batch: &mut GenerationBatch) -> Result<(), ApiError> {
    for prompt in &mut batch.prompts {
        if !matches!(prompt.input, Input::Tokens(_)) {
            let tokens = app.engine.tokenize(prompt.model.as_deref(), &prompt.input, AddSpecial::Yes)?;
            prompt.input = Input::Tokens(tokens);
        }
    }
    Ok(())
}

fn header(app: &App, context: &RequestContext, batch: &GenerationBatch) -> ResponseHeader {
    let requested = batch.prompts.first().and_then(|prompt| prompt.model.clone());
    let default = || app.engine.models().into_iter().next().map(|model| model.id);
    ResponseHeader {
        id: context.caller.response_id.clone(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model: requested.or_else(default).unwrap_or_default(),
    }
}

/// Counts a request that was refused before it reached the engine.
pub fn refused<T>(api: Api, result: Result<T, ApiError>) -> Result<T, ApiError> {
    result.inspect_err(|error| {
        metrics::counter!("omnibus_requests_total", "api" => api.name(), "outcome" => error.outcome())
            .increment(1);
    })
}

/// Reads a request's body and runs a route's work on it, off the threads that serve connections.
pub async fn submitted<T: Send + 'static>(
    app: &Arc<App>,
    request: axum::extract::Request,
    api: Api,
    work: impl FnOnce(&App, &RequestContext, serde_json::Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let extensions = request.extensions();
    let id = extensions.get::<RequestId>().cloned().unwrap_or(RequestId(String::new()));
    let tenant = extensions.get::<Tenant>().cloned().unwrap_or(Tenant(String::new()));
    let context = RequestContext::new(api, id, tenant);
    let body = crate::limits::json_body(request, &app.limits).await;
    let app = Arc::clone(app);
    let result = match body {
        Ok(body) => {
            crate::app::blocking(move || work(&app, &context, crate::wire::json::parse(&body)?)).await
        }
        Err(error) => Err(error),
    };
    refused(api, result)
}
