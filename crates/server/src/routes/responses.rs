//! `POST /v1/responses`, and the responses that are kept: GET, DELETE, cancel and their input items.

pub mod compact;
mod conversation;
pub mod conversations;
pub mod input_tokens;
mod mcp_history;
mod page;
pub mod socket;
mod truncation;

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use omnibus_engine::{SamplingDefaults, SamplingParameter};
use serde::Deserialize;
use serde_json::Value;

use crate::api::{Api, Prepared, RequestContext};
use crate::app::App;
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower::responses::Toolbox;
use crate::lower::{self, GenerationBatch, chat};
use crate::mcp::{Approvals, Asked, Loop};
use crate::response::responses::{ConversationExtension, Place, Recorder, ResponsesFramer, Shown};
use crate::response::{Delivery, ResponseHeader, sse};
use crate::stored_responses::StoredResponse;
use crate::wire::responses::items::with_id;
use crate::wire::responses::response::{
    ConversationReference, Deleted, ItemList, ReasoningEcho, ResponseObject, TextEcho,
};
use crate::wire::responses::{Mode, ResponsesRequest, Storage, Truncation, echo};
use crate::wire::tools::ParallelCalls;
use mcp_history::History;
use page::Page;

/// OpenAI's Responses API.
pub struct ResponsesApi;

impl Api for ResponsesApi {
    const NAME: &'static str = "responses";
    const ID_PREFIX: &'static str = "resp_";
    const INPUT_FIELD: &'static str = "input";
    type Framer = ResponsesFramer;

    fn model(body: &Value, app: &App) -> Option<String> {
        app.served(body.get("model").and_then(Value::as_str)).map(str::to_owned)
    }

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<ResponsesFramer>, ApiError> {
        let mut wire = ResponsesRequest::read(body)?;
        let found = conversation::of(&mut wire, context)?;
        let history = History::of(&found.items, context)?;
        let (mut batch, toolbox) = lowered(&wire, &history.items, context)?;
        let server_loop = server_loop(&wire, history, &mut batch, context)?;
        let mut header = context.header(&batch);
        header.model = wire.model.clone().unwrap_or(header.model);
        let recorder = recorder(&wire, found, context);
        let (encrypted, generation, energy) = (wire.encrypted, wire.generation, wire.energy);
        let (shown, delivery) =
            (Shown { encrypted, generation, energy, search: wire.search_details }, delivery(wire.mode));
        let defaults = context.sampling_defaults(wire.model.as_deref());
        let framer = ResponsesFramer::new(response(wire, header, &defaults), toolbox, shown, recorder);
        Ok(Prepared { batch, framer, delivery, server_loop })
    }
}

/// The loop of a request with MCP servers. None without `tool_choice`: then no tool is called.
fn server_loop(
    wire: &ResponsesRequest,
    history: History,
    batch: &mut GenerationBatch,
    context: &RequestContext<'_>,
) -> Result<Option<Loop>, ApiError> {
    let servers = match &wire.tool_choice {
        Some(_) => wire.mcp.as_slice(),
        None => &[],
    };
    let search = wire.search.as_ref().filter(|_| wire.tool_choice.is_some());
    let mut tools =
        context.server_tools(Asked { servers, auto: false, approvals: Approvals::Possible, search })?;
    tools.retain(|name| wire.tool_choice.as_ref().is_some_and(|choice| choice.allows(name)));
    let listed = history.listed.clone();
    let approved = tools.check_approved(history.approved)?;
    let parts = context.server_loop(tools, batch, chat::call_limit(wire.parallel))?;
    Ok(parts.map(|mut parts| {
        parts.listed.retain(|server| !listed.contains(&server.label));
        Loop { approved, max_calls: wire.echo.max_tool_calls, ..parts }
    }))
}

/// What keeps the response, and extends the conversation that it belongs to.
fn recorder(
    wire: &ResponsesRequest,
    found: conversation::Conversation,
    context: &RequestContext<'_>,
) -> Recorder {
    let store = || Arc::clone(context.responses);
    let place = match (wire.storage, &context.memory) {
        (Storage::Keep, _) => Place::Store(store()),
        (Storage::Discard, Some(memory)) => Place::Connection(Arc::clone(memory)),
        (Storage::Discard, None) => Place::Nowhere,
    };
    let extension = wire.conversation.as_ref().map(|id| ConversationExtension {
        store: store(),
        id: id.clone(),
        had: found.earlier,
    });
    Recorder::new(place, context.caller.tenant.clone(), found.items, extension)
}

/// The engine requests of a conversation.
fn lowered(
    wire: &ResponsesRequest,
    input: &[Value],
    context: &RequestContext<'_>,
) -> Result<(GenerationBatch, Toolbox), ApiError> {
    let items = ResponsesRequest::items(input)?;
    let model = context.served(wire.model.as_deref());
    match wire.truncation {
        Truncation::Disabled => lower::responses::lower(wire, items, model, &context.caller),
        Truncation::Auto => truncation::lower_fitting(wire, items, model, context),
    }
}

fn delivery(mode: Mode) -> Delivery {
    match mode {
        Mode::Full => Delivery::Full,
        Mode::Stream => Delivery::Stream,
        Mode::Background => Delivery::Background,
        Mode::BackgroundStream => Delivery::LoggedStream,
    }
}

/// The response before it has any output.
fn response(wire: ResponsesRequest, header: ResponseHeader, defaults: &SamplingDefaults) -> ResponseObject {
    ResponseObject {
        id: header.id,
        object: "response",
        created_at: header.created,
        status: "in_progress",
        background: matches!(wire.mode, Mode::Background | Mode::BackgroundStream),
        error: None,
        incomplete_details: None,
        instructions: wire.instructions,
        max_output_tokens: wire.max_output_tokens,
        model: header.model,
        output: Vec::new(),
        parallel_tool_calls: wire.parallel == ParallelCalls::Allow,
        previous_response_id: wire.previous,
        conversation: wire.conversation.map(|id| ConversationReference { id }),
        reasoning: ReasoningEcho { effort: wire.effort, summary: None },
        store: wire.storage == Storage::Keep,
        temperature: wire.temperature.unwrap_or_else(|| defaults.value(SamplingParameter::Temperature)),
        text: TextEcho { format: wire.echo.format, verbosity: wire.verbosity.name() },
        tool_choice: wire.echo.tool_choice,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        tools: echo::tools(wire.raw_tools),
        top_p: wire.top_p.unwrap_or_else(|| defaults.value(SamplingParameter::TopP)),
        truncation: wire.truncation.name(),
        usage: None,
        metadata: wire.metadata,
        completed_at: None,
        max_tool_calls: wire.echo.max_tool_calls,
        top_logprobs: wire.echo.top_logprobs.unwrap_or(0),
        service_tier: "default",
        user: wire.echo.user,
        safety_identifier: wire.echo.safety_identifier,
        prompt_cache_key: wire.echo.prompt_cache_key,
    }
}

fn stored(
    app: &App,
    tenant: &Tenant,
    id: Result<Path<String>, PathRejection>,
) -> Result<StoredResponse, ApiError> {
    let Path(id) = id?;
    app.responses
        .get(&tenant.0, &id)
        .ok_or_else(|| ApiError::not_found(format!("no stored response has the id `{id}`")))
}

/// How a stored response is returned.
#[derive(Debug, Default, Deserialize)]
pub struct Retrieval {
    #[serde(default)]
    stream: bool,
    starting_after: Option<u64>,
}

/// A stored response, or the events of one that is streamed in the background.
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
    retrieval: Result<Query<Retrieval>, QueryRejection>,
) -> Result<Response, ApiError> {
    let found = stored(&app, &tenant, id)?;
    let Query(Retrieval { stream, starting_after }) =
        retrieval.map_err(|error| ApiError::invalid("stream", error.body_text()))?;
    if !stream {
        return Ok(Json(found.response).into_response());
    }
    let log = app.event_logs.get(&found.id).ok_or_else(|| {
        let message =
            "only the events of responses with `background` and `stream` can be read again, for some time";
        ApiError::invalid("stream", message)
    })?;
    // Each event has the number of its frame.
    let next = starting_after.map_or(0, |last| last.saturating_add(1));
    Ok(sse::response(log.read(usize::try_from(next).unwrap_or(usize::MAX))))
}

/// Removes a stored response.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let StoredResponse { id, .. } = stored(&app, &tenant, id)?;
    app.responses.remove(&tenant.0, &id);
    app.event_logs.remove(&id);
    Ok(Json(Deleted { id, object: "response", deleted: true }))
}

/// Cancels a response that is still generated. One that has ended stays as it is.
pub async fn cancel(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let mut found = stored(&app, &tenant, id)?;
    if !found.is_running() {
        return Ok(Json(found.response));
    }
    let own = app.engine.requests().into_iter().filter(|info| info.origin.response_id == found.id);
    own.for_each(|info| _ = app.engine.cancel(&info.id));
    found.response["status"] = "cancelled".into();
    app.responses.insert(found.clone());
    Ok(Json(found.response))
}

/// The items of the conversation up to a stored response.
pub async fn input_items(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    id: Result<Path<String>, PathRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ItemList>, ApiError> {
    let Query(page) = page.map_err(page::unreadable)?;
    let found = stored(&app, &tenant, id)?;
    let items = found.input.into_iter().enumerate().map(|(index, item)| with_id(item, &found.id, index));
    page.of(items.collect()).map(Json)
}
