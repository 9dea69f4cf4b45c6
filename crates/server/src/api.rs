//! Generation APIs: what an API implements, and the handler that all of them share.
//!
//! Invariant: nothing here knows an API's format.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use futures::future::BoxFuture;
use omnibus_engine::{AddSpecial, CallLimit, Class, Input, ModelInfo, RequestOrigin, SamplingDefaults};
use serde_json::Value;
use uuid::Uuid;

use crate::app::{App, ModelNames, RequestTemplates, blocking};
use crate::auth::Tenant;
use crate::charge::{Charge, PromptCharge};
use crate::connection_memory::ConnectionMemory;
use crate::engine::{Engine, Lease};
use crate::error::ApiError;
use crate::keys::{Key, StreamPlace};
use crate::lower::{Caller, Choices, GenerationBatch, expand};
use crate::mcp::{self, Asked, Generations, Loop, NextGeneration, ServerTools, SharedMcp};
use crate::observe::ObservedEvents;
use crate::request_id::RequestId;
use crate::response::{
    ChoiceEvents, Delivery, Event, Framer, JsonBody, ResponseHeader, frames, full, merge, not_enforced,
    reply, sse,
};
use crate::stored_responses::StoredResponses;
use crate::traces::{Generated, GenerationTrace, RequestTrace};
use crate::wire::generation::TokenIds;

/// A generation API: a wire module, a lowering and a framer.
pub trait Api: Send + Sync + 'static {
    /// The value of the `api` label of metrics.
    const NAME: &'static str;
    /// The prefix of response ids, with what follows it.
    const ID_PREFIX: &'static str;
    /// The field at fault when the input is too long.
    const INPUT_FIELD: &'static str;
    /// Makes the API's frames.
    type Framer: Framer;

    /// The served name of the model that a body requests; `None` for the default one.
    fn model(body: &Value, app: &App) -> Option<String> {
        let _ = app;
        body.get("model").and_then(Value::as_str).map(str::to_owned)
    }

    /// Reads a body and lowers it. Runs off the threads that serve connections. Fails when the body is invalid.
    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<Self::Framer>, ApiError>;
}

/// A generation request that is ready to be submitted.
pub struct Prepared<F> {
    /// The engine requests.
    pub batch: GenerationBatch,
    /// Frames the response.
    pub framer: F,
    /// How the response is delivered.
    pub delivery: Delivery,
    /// The tools that this server runs for it, where it has any.
    pub server_loop: Option<Loop>,
}

/// The context of a generation request.
pub struct RequestContext<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The tenant, and the response's id.
    pub caller: Caller,
    /// The id of the HTTP request.
    pub request_id: &'a RequestId,
    /// The response's id for the client, where it chose one itself.
    pub client_id: Option<String>,
    /// Which model names are served.
    pub names: ModelNames,
    /// Whether requests may have chat templates of their own.
    pub templates: RequestTemplates,
    /// Responses that are kept.
    pub responses: &'a Arc<StoredResponses>,
    /// The memory of the connection, where it has one.
    pub memory: Option<Arc<ConnectionMemory>>,
    /// The MCP servers, where there are any.
    pub mcp: Option<&'a SharedMcp>,
    /// The key of the request.
    pub key: &'a Key,
}

impl RequestContext<'_> {
    /// The tools of MCP servers that a request names. Connects to those at URLs.
    pub fn server_tools(&self, asked: Asked<'_>) -> Result<ServerTools, ApiError> {
        ServerTools::of(self.mcp, asked, self.key)
    }

    /// The loop of a request with tools, which are added to its only prompt; `None` without tools and approved calls.
    pub fn server_loop(
        &self,
        mut tools: ServerTools,
        batch: &mut GenerationBatch,
        limit: CallLimit,
    ) -> Result<Option<Loop>, ApiError> {
        let Some(mcp) = self.mcp.filter(|_| !tools.is_empty()) else { return Ok(None) };
        let (1, [prompt]) = (batch.n, batch.prompts.as_mut_slice()) else {
            let message = "`n` must be 1 with tools that this server runs";
            return Err(ApiError::unsupported("n", message));
        };
        tools.add_to(prompt, limit, self.engine)?;
        let (mcp, listed) = (Arc::clone(mcp), tools.listed());
        Ok(Some(Loop { mcp, tools, max_calls: None, approved: Vec::new(), listed }))
    }

    /// The served model for a name, in APIs whose clients choose names of their own.
    pub fn served(&self, name: Option<&str>) -> Option<String> {
        self.names.served(name, self.engine).map(str::to_owned)
    }

    /// Most tokens of a prompt and its completion. The first model is the default one.
    pub fn max_model_len(&self, model: Option<&str>) -> Option<usize> {
        let models = self.engine.models();
        let found = match model {
            None => models.first(),
            Some(name) => models.iter().find(|info| info.names().any(|served| served == name)),
        };
        Some(found?.details()?.max_model_len)
    }

    /// What requests for a model have that leave sampling parameters out. The first model is the default one.
    pub fn sampling_defaults(&self, model: Option<&str>) -> SamplingDefaults {
        let models = self.engine.models();
        let named = models.iter().find(|info| info.names().any(|name| Some(name) == model));
        let details = named.or(models.first()).and_then(ModelInfo::details);
        details.map(|details| details.sampling.clone()).unwrap_or_default()
    }

    /// Keeps the last tokens of each prompt, where a request says how many. Fails for prompts with tools or media.
    pub fn truncate_prompts(&self, batch: &mut GenerationBatch, last: Option<usize>) -> Result<(), ApiError> {
        let Some(last) = last else { return Ok(()) };
        for prompt in &mut batch.prompts {
            if matches!(&prompt.input, Input::Chat(chat) if !chat.media.is_empty() || !chat.tools.is_empty())
            {
                let at = "truncate_prompt_tokens";
                return Err(ApiError::unsupported(at, format!("`{at}` does not go with tools and media")));
            }
            let tokens = self.engine.tokenize(prompt.model.as_deref(), &prompt.input, AddSpecial::Yes)?;
            let kept = tokens.get(tokens.len().saturating_sub(last)..).unwrap_or_default();
            prompt.input = Input::Tokens(kept.to_vec());
        }
        Ok(())
    }

    /// The tokens of each prompt, where their ids are returned. Fails for prompts with media, which are not fetched yet.
    pub fn prompt_token_ids(
        &self,
        batch: &GenerationBatch,
        ids: TokenIds,
    ) -> Result<Option<Vec<Vec<u32>>>, ApiError> {
        if ids == TokenIds::Omit {
            return Ok(None);
        }
        let tokens = |prompt: &omnibus_engine::Request| {
            if matches!(&prompt.input, Input::Chat(chat) if !chat.media.is_empty()) {
                let message = "`return_token_ids` does not go with images, videos and sounds";
                return Err(ApiError::unsupported("return_token_ids", message));
            }
            Ok(self.engine.tokenize(prompt.model.as_deref(), &prompt.input, AddSpecial::Yes)?)
        };
        batch.prompts.iter().map(tokens).collect::<Result<_, _>>().map(Some)
    }

    /// The header of the response to a batch.
    pub fn header(&self, batch: &GenerationBatch) -> ResponseHeader {
        let requested = batch.prompts.first().and_then(|prompt| prompt.model.clone());
        let default = || self.engine.models().into_iter().next().map(|model| model.id);
        ResponseHeader {
            id: self.client_id.clone().unwrap_or_else(|| self.caller.response_id.clone()),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            model: requested.or_else(default).unwrap_or_default(),
        }
    }
}

/// The handler of an API's route: reads, lowers, submits, responds.
pub async fn generate<A: Api>(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let submitted = submitted::<A>(&app, request).await;
    deliver(&app, submitted.inspect_err(|error| count_refused(A::NAME, error))?).await
}

/// Submits a body that is parsed already, and responds.
pub async fn generate_from<A: Api>(
    app: &Arc<App>,
    body: Value,
    origin: Origin,
) -> Result<Response, ApiError> {
    deliver(app, submitted_from::<A>(app, body, origin).await?).await
}

async fn deliver(app: &App, submitted: Submitted<impl Framer>) -> Result<Response, ApiError> {
    let Submitted { response_id, framer, events, choices, delivery, not_enforced } = submitted;
    if delivery == Delivery::LoggedStream {
        let log = app.event_logs.open(&response_id);
        let (recorder, frames) = (Arc::clone(&log), frames(framer, events, choices, app.keep_alive));
        tokio::spawn(async move { recorder.record(frames).await });
        let mut response = sse::response(log.read(0));
        not_enforced::add_header(&mut response, &not_enforced);
        return Ok(response);
    }
    let mut response = reply(framer, events, choices, delivery, app.keep_alive).await?;
    not_enforced::add_header(&mut response, &not_enforced);
    Ok(response)
}

/// A request that the engine has accepted.
pub struct Submitted<F> {
    /// The response's id.
    pub response_id: String,
    /// Frames the response.
    pub framer: F,
    /// The events of all choices.
    pub events: ChoiceEvents,
    /// How many there are.
    pub choices: Choices,
    /// How the response is delivered.
    pub delivery: Delivery,
    /// What of its schemas is not enforced.
    pub not_enforced: Vec<String>,
}

/// Where a request comes from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The HTTP request.
    pub request_id: RequestId,
    /// Whose it is.
    pub tenant: String,
    /// The response's id for the client, where it chose one itself.
    pub client_id: Option<String>,
    /// The memory of the connection, where it has one.
    pub memory: Option<Arc<ConnectionMemory>>,
    /// The span of the request, where it is traced.
    pub trace: Option<RequestTrace>,
    /// Whether a client waits for it.
    pub class: Class,
}

/// The whole response to a body that came without a connection of its own, however the body wants it delivered.
pub async fn respond<A: Api<Framer: Framer<Body = JsonBody>>>(
    app: &Arc<App>,
    body: Value,
    origin: Origin,
) -> Result<JsonBody, ApiError> {
    let Submitted { framer, events, choices, .. } = submitted_from::<A>(app, body, origin).await?;
    full(framer, events, choices).await
}

impl Origin {
    /// A tenant's request without more.
    pub fn new(request_id: RequestId, tenant: String) -> Self {
        Self { request_id, tenant, client_id: None, memory: None, trace: None, class: Class::Online }
    }

    /// That of a request with a connection of its own.
    pub fn of(request: &Request) -> Self {
        let extensions = request.extensions();
        let trace = extensions.get::<RequestTrace>().cloned();
        let request_id = extensions.get::<RequestId>().cloned().unwrap_or_default();
        let Tenant(tenant) = extensions.get::<Tenant>().cloned().unwrap_or_default();
        // Only a batch's requests have one.
        let class = extensions.get::<Class>().copied().unwrap_or_default();
        Self { trace, class, ..Self::new(request_id, tenant) }
    }
}

async fn submitted<A: Api>(app: &Arc<App>, request: Request) -> Result<Submitted<A::Framer>, ApiError> {
    let origin = Origin::of(&request);
    let body = app.bodies.json(request).await?;
    // It takes room until its requests are submitted.
    let (value, _reading) = blocking(move || body.parse()).await?;
    leased::<A>(app, value, origin).await
}

/// Submits a body that is parsed already. A failure is counted.
pub async fn submitted_from<A: Api>(
    app: &Arc<App>,
    body: Value,
    origin: Origin,
) -> Result<Submitted<A::Framer>, ApiError> {
    leased::<A>(app, body, origin).await.inspect_err(|error| count_refused(A::NAME, error))
}

/// Waits until the body's model is loaded, and submits it.
async fn leased<A: Api>(
    app: &Arc<App>,
    body: Value,
    origin: Origin,
) -> Result<Submitted<A::Framer>, ApiError> {
    let model = A::model(&body, app);
    let lease = app.queued_lease(&origin.tenant, origin.class, model.as_deref()).await?;
    let app = Arc::clone(app);
    blocking(move || submit::<A>(app, body, origin, lease)).await
}

/// Reads a body, lowers it and submits its requests. Takes milliseconds of CPU: not for an async thread.
fn submit<A: Api>(
    app: Arc<App>,
    body: Value,
    origin: Origin,
    lease: Lease,
) -> Result<Submitted<A::Framer>, ApiError> {
    // A new id: clients may reuse an HTTP request id.
    let response_id = format!("{}{}", A::ID_PREFIX, Uuid::new_v4().simple());
    let Origin { request_id, tenant, client_id, memory, trace, class } = origin;
    let key = app.keys.of_tenant(&tenant)?;
    let stream = Arc::new(key.admit(class)?);
    let context = RequestContext {
        engine: app.engine.as_ref(),
        caller: Caller { response_id, tenant },
        request_id: &request_id,
        client_id,
        names: app.model_names,
        templates: app.request_templates,
        responses: &app.responses,
        memory,
        mcp: app.mcp.as_ref(),
        key: &key,
    };
    let Prepared { mut batch, mut framer, delivery, server_loop } = A::prepare(body, &context)?;
    for prompt in &mut batch.prompts {
        prompt.class = class;
        key.check_model(prompt.model.as_deref(), context.engine)?;
        let of = (prompt.model.as_deref(), context.caller.tenant.as_str());
        app.media_urls.fetch(&mut prompt.input, context.engine, of)?;
    }
    let choices = batch.choices();
    let not_enforced = batch.prompts.first().map(omnibus_engine::Request::not_enforced).unwrap_or_default();
    let (caller, response_id) = (context.caller.clone(), context.caller.response_id);
    let submission = Arc::new(Submission {
        app: Arc::clone(&app),
        api: A::NAME,
        request_id,
        caller,
        key: Arc::clone(&key),
        stream,
        lease,
        trace,
    });
    let events = match (server_loop, batch.prompts.pop()) {
        (Some(parts), Some(prompt)) => {
            let generations: Arc<dyn Generations> = submission;
            mcp::start(&generations, prompt, parts).map(|events| merge(vec![events]))
        }
        (_, last) => {
            batch.prompts.extend(last);
            submission.submit(batch)
        }
    };
    let events = events.map_err(|error| error.with_input_param(A::INPUT_FIELD))?;
    framer.submitted();
    Ok(Submitted { response_id, framer, events, choices, delivery, not_enforced })
}

/// Submits the requests of one HTTP request.
struct Submission {
    app: Arc<App>,
    api: &'static str,
    request_id: RequestId,
    caller: Caller,
    key: Arc<Key>,
    stream: Arc<StreamPlace>,
    lease: Lease,
    trace: Option<RequestTrace>,
}

impl Submission {
    /// Submits all requests of a batch, or none: when one is refused, those before it are dropped.
    fn submit(&self, mut batch: GenerationBatch) -> Result<ChoiceEvents, ApiError> {
        if batch.n > 1 {
            self.tokenize_once(&mut batch)?;
        }
        let per_prompt = batch.n.max(1);
        let requests = expand::expand_n(batch).into_iter().enumerate();
        let events = requests.map(|(index, request)| {
            let is_first = index.is_multiple_of(per_prompt);
            let charge = if is_first { PromptCharge::Charged } else { PromptCharge::Free };
            self.submit_one(index, request, charge)
        });
        Ok(merge(events.collect::<Result<_, _>>()?))
    }

    /// Submits one request, which takes a place of its key's share.
    fn submit_one(
        &self,
        index: usize,
        mut request: omnibus_engine::Request,
        prompt: PromptCharge,
    ) -> Result<ObservedEvents, ApiError> {
        request.origin = RequestOrigin {
            response_id: self.caller.response_id.clone(),
            request_id: self.request_id.0.clone(),
            index,
        };
        let queued = self.key.queue(self.app.queue_places, request.class)?;
        let trace = self.trace.clone().map(|trace| self.traced(trace, &request));
        let events = self.app.engine.submit(request)?;
        let (account, stream) = (Arc::clone(&self.key.account), Arc::clone(&self.stream));
        let charge = Charge::new(account, prompt, queued, stream);
        Ok(ObservedEvents::new(events.map(Event::Engine).boxed(), self.api)
            .charging(charge)
            .leasing(self.lease.clone())
            .with_vllm(self.app.vllm_request())
            .with_trace(trace))
    }

    fn traced(&self, trace: RequestTrace, request: &omnibus_engine::Request) -> GenerationTrace {
        let first = || self.app.engine.models().into_iter().next().map(|model| model.id);
        let model = request.model.clone().or_else(first).unwrap_or_default();
        let of = Generated { api: self.api, response_id: &self.caller.response_id, model: &model };
        GenerationTrace::new(trace, &of, request)
    }

    /// Tokenizes a prompt once for all of its completions, where tokens say all of it: grammars follow from tools and from
    /// where reasoning begins, which a conversation tells.
    fn tokenize_once(&self, batch: &mut GenerationBatch) -> Result<(), ApiError> {
        for prompt in &mut batch.prompts {
            let is_plain = match &prompt.input {
                Input::Text(_) => true,
                Input::Chat(chat) => {
                    chat.media.is_empty() && chat.tools.is_empty() && prompt.structured.is_none()
                }
                Input::Tokens(_) | Input::Infill { .. } => false,
            };
            if is_plain {
                let model = prompt.model.as_deref();
                prompt.input =
                    Input::Tokens(self.app.engine.tokenize(model, &prompt.input, AddSpecial::Yes)?);
            }
        }
        Ok(())
    }
}

impl Generations for Submission {
    fn tenant(&self) -> &str {
        &self.caller.tenant
    }

    fn is_cancelled(&self) -> bool {
        let stored = self.app.responses.get(&self.caller.tenant, &self.caller.response_id);
        stored.is_some_and(|stored| stored.response["status"] == "cancelled")
    }

    fn submit(&self, request: omnibus_engine::Request) -> Result<mcp::Events, ApiError> {
        Ok(self.submit_one(0, request, PromptCharge::Charged)?.boxed())
    }

    fn submit_next(
        self: Arc<Self>,
        next: NextGeneration,
    ) -> BoxFuture<'static, Result<(omnibus_engine::Request, mcp::Events), ApiError>> {
        let work = move || {
            let model = next.model();
            let plain = |text: &str| self.app.engine.without_markers(model.as_deref(), text).ok();
            let request = next.request(plain);
            let events = Generations::submit(self.as_ref(), request.clone())?;
            Ok((request, events))
        };
        Box::pin(blocking(work))
    }
}

/// Counts a request that was refused before it reached the engine.
pub fn count_refused(api: &'static str, error: &ApiError) {
    metrics::counter!("omnibus_requests_total", "api" => api, "outcome" => error.code()).increment(1);
}
